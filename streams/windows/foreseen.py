"""The watermark after a batch, known before the batch runs (one_batch.py).

Only records that move Spark's watermark count: those with a time, with a value that fits, and not too far ahead. They
are read by the same code as in the batch itself, but only in the parts of the log that may have the newest time.

Invariant: the result is at most what Spark computes after the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.storage.errors import CorruptLogError
from barnabas.streams.source.names import CORRUPT
from barnabas.streams.source.rows import Rows
from barnabas.streams.wal import Split, WalError
from barnabas.streams.windows.due import Rule
from barnabas.wire.streams.clauses import RECORD_TIME

#: Where an offset has it, if it is known: the first is a field of the offset, the second a field of that.
PLACE, FORESEEN = "#close", "foreseen"
_OWN_TIMES = ("_timestamp", "timestamp")


class Foreseen:
    """Reads the newest event time that moves the watermark."""

    def __init__(self, rows: Rows, rule: Rule) -> None:
        """`rows` are those of the batch: all columns that its query needs."""
        self._rows, self._rule = rows, rule
        names = {name.lower(): number for number, name in enumerate(rows.target.names)}
        self._own = next((names[name] for name in _OWN_TIMES if name in names), None)
        self._time = self._own if rule.time == RECORD_TIME else names.get(rule.time.lower())
        self._corrupt = names.get(CORRUPT.lower())

    def watermark(self, parts: Sequence[tuple[int, Split]]) -> int:
        """The watermark in ms since 1970 to which the records of these parts move it; 0 if that is not known.

        Each part has the newest time that it may have. Those that cannot have a newer one are not read.
        """
        found = 0
        for newest, split in sorted(parts, key=itemgetter(0), reverse=True):
            if newest <= found:
                break
            found = max(found, self._newest_in(split))
        return max(found - self._rule.delay_ms, 0)

    def _newest_in(self, split: Split) -> int:
        """The newest time that counts, in ms since 1970; 0 if there is none."""
        if self._time is None or self._own is None:
            return 0
        try:
            return max((self._newest(rows) or 0 for rows in self._rows.batches(split)), default=0) // 1000
        except (OSError, CorruptLogError, WalError):  # the batch itself deals with that
            return 0

    def _newest(self, rows: pa.RecordBatch) -> int | None:
        """The newest time that counts, in us since 1970; None if there is none."""
        assert self._time is not None
        assert self._own is not None
        time = rows.column(self._time).cast(pa.int64())
        counts = pc.is_valid(time)
        if self._corrupt is not None:
            counts = pc.and_(counts, pc.is_null(rows.column(self._corrupt)))
        if self._time != self._own:
            latest = pc.add(rows.column(self._own).cast(pa.int64()), self._rule.ahead_ms * 1000)
            counts = pc.and_(counts, pc.less_equal(time, latest))
        newest = pc.max(time.filter(counts)).as_py()
        return None if newest is None else int(newest)
