"""The part of a source that a query has not read yet: its size, and its newest event time (due.py).

The records' own times are in the headers of record batches. If the event time is a column, only that column is parsed
out of the new records. Each record is read at most once. When the unread part is already large enough for a batch, no
record is read.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.storage.errors import CorruptLogError
from barnabas.storage.log_reader import opened
from barnabas.streams.source.rows import Rows
from barnabas.streams.wal import Planner, Split, WalError
from barnabas.streams.windows.due import MOST_BYTES, Unread
from barnabas.wire.aliases import TopicPartition

#: The record's own time, if a column is the event time.
OWN_TIME = "_timestamp"


class Ahead:
    """Looks ahead in one query's source."""

    def __init__(self, planner: Planner, times: Rows | None = None, ahead_ms: int = 0) -> None:
        """`times` makes rows of the event time and `_timestamp`; without it, the records' own times count."""
        self._planner, self._times, self._ahead_ms = planner, times, ahead_ms
        self._start: dict[TopicPartition, int] = {}
        self._looked: dict[TopicPartition, int] = {}
        self._unread = Unread()
        #: The parts of the unread log with their newest event times, of which one may be that of a malformed record.
        self.parts: list[tuple[int, Split]] = []

    def look(self, start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, tuple[int, int]]) -> Unread:
        """The unread data from `start` on; `ends` are each partition's first and last offsets. Raises WalError."""
        if self._start != start:
            self._start, self._looked, self._unread, self.parts = dict(start), {}, Unread(), []
        new = {}
        for key, (first, end) in ends.items():
            since = self._looked.get(key, max(start.get(key, first), first))
            if since < end:
                new[key] = since, end
        if new:
            splits = self._planner.plan(new)
            self._looked |= {key: end for key, (_, end) in new.items()}
            # Offsets without bytes, such as those that compaction leaves, must also be passed.
            size = self._unread.size + max(sum(split.end - split.start for split in splits), 1)
            newest = self._unread.newest
            if size < MOST_BYTES:
                found = [(time, split) for split in splits if (time := self._newest(split)) is not None]
                self.parts += found
                newest = max((time for time, _ in self.parts), default=None)
            self._unread = Unread(size, newest)
        return self._unread

    def _newest(self, split: Split) -> int | None:
        """The newest event time in a split, in ms since 1970.

        It is unknown if the segment is just being replaced or is damaged: the later reader deals with that.
        """
        try:
            return self._of_headers(split) if self._times is None else self._of_rows(split, self._times)
        except (OSError, CorruptLogError, WalError):
            return None

    def _of_headers(self, split: Split) -> int | None:
        """The newest time in the batches' headers. The first batch may begin before the split."""
        return max(
            (
                header.max_timestamp
                for _, header in opened(split.place).headers(split.start, split.end)
                if not header.is_control and header.last_offset >= split.lo
            ),
            default=None,
        )

    def _of_rows(self, split: Split, times: Rows) -> int | None:
        newest = None
        for rows in times.batches(split):
            time, own = (rows.column(number).cast(pa.int64()) for number in range(2))
            found = pc.max(time.filter(pc.less_equal(time, pc.add(own, self._ahead_ms * 1000)))).as_py()
            if found is not None:
                newest = max(newest or found, found)
        return None if newest is None else newest // 1000
