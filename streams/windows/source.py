"""The source of a stream: the `wal` source, and marks that close the windows of a quiet topic.

A mark is a row that has a time and nothing else. The driver writes the time into a file; the file's time is part of the
source's offset, so Spark's checkpoint says which mark a batch has, and a batch that is repeated has the same one.

While the file `holdFile` is there, no record is new: a stream that is being made may share the query, which must not
read its first record before.

Of a backlog, which takes several batches, the partitions are read at the pace of their records' times.

Batches that are made again read what they read before (batches.py).

A source into which nothing has come for a while is looked at less often: twenty quiet streams should cost next to
nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes
from pyspark.sql.types import StructType

from barnabas.streams.source.batch import SplitPartition
from barnabas.streams.source.offsets import from_wire, to_wire
from barnabas.streams.source.options import Options
from barnabas.streams.source.rows import Rows
from barnabas.streams.source.source import WalDataSource
from barnabas.streams.source.stream import StreamReader
from barnabas.streams.wal import Split, offset_at, read
from barnabas.streams.windows.batches import Replay
from barnabas.streams.windows.plan import CLOCK, CLOSE
from barnabas.streams.windows.ticks import Ticks
from barnabas.wire.aliases import TopicPartition

FORMAT = "barnabas-stream"
_FILES, _RATE, _PERIOD = ("closefile", "holdfile", "replayfile"), "bytespersecond", "period"
#: The mark in an offset; it can be no topic's name.
_MARK, _AT = "#close", "at"
# After this long without a record or a mark, the source rests before each look.
QUIET_SECONDS = 10.0
REST_SECONDS = 0.75


def write_mark(path: str, ms: int) -> None:
    """Have the windows up to this time closed. Raises OSError."""
    made = Path(f"{path}.new")
    made.write_text(str(ms))
    made.replace(path)


def read_mark(path: str) -> int:
    """The time of the last mark; 0 if there is none."""
    try:
        return int(Path(path).read_text())
    except (FileNotFoundError, ValueError):
        return 0


class StreamDataSource(WalDataSource):
    """The `wal` source with `closeFile`, `holdFile`, `replayFile`, `bytesPerSecond` and `period`, and the column of the
    marks as the schema's last; with a period, that of the clock behind it.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        given = dict(options)
        found = {name.lower(): given.pop(name) for name in list(given) if name.lower() in (*_FILES, _RATE, _PERIOD)}
        self._files = [found.get(name, "") for name in _FILES]
        self._rate = int(found.get(_RATE, "0"))
        self._period = found.get(_PERIOD, "")
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> MarkedReader:
        inner = StructType([field for field in schema.fields if field.name not in (CLOSE, CLOCK)])
        ticks = Ticks(*_numbers(self._period)) if self._period else None
        return MarkedReader(self._options, self._rows(inner), *self._files, rate=self._rate, ticks=ticks)


class MarkPartition(InputPartition):
    """A mark, as one task's work."""

    def __init__(self, ms: int) -> None:
        super().__init__(ms)
        self.ms = ms


class TimedPartition(SplitPartition):
    """One task's split, and the time at which its records are read."""

    def __init__(self, split: Split, ms: int) -> None:
        super().__init__(split)
        self.ms = ms


class MarkedReader(StreamReader):
    """Offsets are those of the `wal` source, and the time of the last mark."""

    def __init__(
        self,
        options: Options,
        rows: Rows,
        close_file: str,
        hold_file: str = "",
        replay_file: str = "",
        *,
        rate: int = 0,
        ticks: Ticks | None = None,
    ) -> None:
        """`rate` is in bytes of the log per second; 0 for no limit. `ticks` are those of windows by the clock."""
        super().__init__(options, rows)
        self._close_file, self._hold_file = close_file, hold_file
        self._replay = Replay(replay_file) if replay_file else None
        self._changed_at = time.monotonic()
        self._rate, self._next_at = rate, 0.0
        kind = pa.timestamp("us", "UTC")
        self._ticks = ticks
        own = (CLOSE,) if ticks is None else (CLOSE, CLOCK)
        self._schema = pa.schema([*rows.target, *(pa.field(name, kind) for name in own)])

    def initialOffset(self) -> dict[str, Any]:
        return {**super().initialOffset(), _MARK: {_AT: 0}}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if self._replay is not None and (again := self._replay.next()) is not None:
            return again
        if time.monotonic() - self._changed_at >= QUIET_SECONDS:
            time.sleep(REST_SECONDS)
        if self._hold_file and os.path.exists(self._hold_file):
            return start
        plain, mark = _apart(start)
        ends = self._ends(plain, limit)
        if self._ticks is None:
            latest = max(mark, read_mark(self._close_file))
        else:
            latest = self._ticks.next(mark, has_records=ends != plain)
        found = {**ends, _MARK: {_AT: latest}}
        if found != start:
            self._changed_at = time.monotonic()
        return found

    def _ends(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Up to where the next batch reads, no faster than it may."""
        if not self._rate:
            return self._in_time(start, super().latestOffset(start, limit))
        if time.monotonic() < self._next_at:
            return start
        most = min(limit.max_bytes, self._rate) if isinstance(limit, ReadMaxBytes) else self._rate
        end = self._in_time(start, super().latestOffset(start, ReadMaxBytes(most)))
        if end != start:
            splits = [part.split for part in super().partitions(start, end) if isinstance(part, SplitPartition)]
            size = sum(split.end - split.start for split in splits)
            self._next_at = time.monotonic() + size / self._rate
        return end

    def _in_time(self, start: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
        """The end of a batch that leaves records for later, without those that are later than what is left.

        The watermark goes by the latest record of all partitions. A partition that is read further than another one
        would make the rest of that one late. The one whose rest is the oldest keeps its end, so there is progress.
        """
        (began, _), (ends, ids) = from_wire(start), from_wire(end)
        rests = [time for key, at in ends.items() if (time := self._time_at(key, at)) is not None]
        if not rests:
            return end
        log_dir, _ = self._open()
        oldest = min(rests)
        for key, at in ends.items():
            found = offset_at(log_dir, key, oldest + 1, began.get(key, self._seen[key][0]), at)
            ends[key] = at if found is None else found
        return to_wire(ends, ids)

    def _time_at(self, key: TopicPartition, at: int) -> int | None:
        """The time of the first record that a batch leaves; None where it leaves none."""
        end = self._seen.get(key, (0, 0))[1]
        if at >= end:
            return None
        for split in self._open()[1].plan({key: (at, end)}):
            for batch in read(split, ["timestamp"], fail_on_data_loss=False):
                return int(batch.column(0)[0].cast(pa.int64()).as_py())
        return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        (began, before), (ends, mark) = _apart(start), _apart(end)
        splits = super().partitions(began, ends)
        found = [self._timed(part, mark) for part in splits] if self._ticks is not None else list(splits)
        return [*found, MarkPartition(mark)] if mark > before else found

    @staticmethod
    def _timed(part: InputPartition, ms: int) -> InputPartition:
        assert isinstance(part, SplitPartition)
        return TimedPartition(part.split, ms)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, MarkPartition):
            row = dict.fromkeys(self._schema.names) | {CLOSE: partition.ms * 1000}
            arrays = [
                pa.array([row[f.name]], pa.int64()).cast(f.type) if f.name == CLOSE else _blank(f) for f in self._schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            return
        assert isinstance(partition, SplitPartition)
        for batch in super().read(partition):
            kind = self._schema.field(CLOSE).type
            columns = [*batch.columns, pa.nulls(batch.num_rows, kind)]
            if isinstance(partition, TimedPartition):
                columns.append(pa.repeat(pa.scalar(partition.ms * 1000, kind), batch.num_rows))
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _numbers(text: str) -> tuple[int, int]:
    one, other = text.split(",")
    return int(one), int(other)


def _blank(field: pa.Field) -> pa.Array:
    """One value of a column in a mark: nothing, or where nothing is not possible, a zero."""
    if field.nullable:
        return pa.nulls(1, field.type)
    return pa.array([0 if pa.types.is_integer(field.type) else ""], field.type)


def ends_of(offset: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """The source's own offsets in one of Spark's."""
    ends, _ = from_wire({key: value for key, value in offset.items() if key != _MARK})
    return ends


def _apart(offset: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The source's own offset, and the mark's time."""
    plain = dict(offset)
    mark = plain.pop(_MARK, {}).get(_AT, 0)
    return plain, int(mark)
