"""The source of a stream: the `wal` source, and marks that close the windows of a quiet topic.

A mark is a row that has a time and nothing else. The driver writes the time into a file; the file's time is part of the
source's offset, so Spark's checkpoint says which mark a batch has, and a repeated batch has the same one.

The watermark after a batch is part of the batch's offset if it is known (foreseen.py), while the file `foreseeFile`
exists. Otherwise a batch without records follows that closes the windows; its offset has the watermark, too.

While the file `holdFile` exists, the source reports no new records: a stream that is being made may share the query,
which must not read the stream's first record too early.

A batch is planned when it is due (due.py). Until then the source keeps polling, so that the batch begins as soon as a
record arrives that closes a window.

A backlog takes several batches. Its partitions are read at the pace of their records' times.

Batches that run again read the same records as before (batches.py).

With a join there is a column for the other topic (others.py). If that is a stream, both topics are read; if it is a
table, the offsets say how new it must be.

A source without new records is polled less often after a while, and the broker is asked about it only when its files
have changed: twenty quiet streams should cost next to nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes
from pyspark.sql.types import StructField, StructType

from barnabas.streams.quick_arrow import WITHOUT_PANDAS, import_arrow
from barnabas.streams.source.batch import SplitPartition
from barnabas.streams.source.names import CORRUPT, META
from barnabas.streams.source.offsets import from_wire, to_wire
from barnabas.streams.source.options import Options
from barnabas.streams.source.rows import Rows, rows_of
from barnabas.streams.source.source import WalDataSource
from barnabas.streams.source.stream import StreamReader
from barnabas.streams.wal import NotReadyError, Planner, Split, Stamps, offset_at, read
from barnabas.streams.windows.ahead import OWN_TIME, Ahead
from barnabas.streams.windows.batches import Replay, next_watermark_ms, owed_watermark_ms
from barnabas.streams.windows.due import Due, Rule, Unread
from barnabas.streams.windows.foreseen import FORESEEN, PLACE, Foreseen
from barnabas.streams.windows.others import OTHER, Other, OtherRows, Table
from barnabas.streams.windows.panes import Panes, panes_from
from barnabas.streams.windows.ticks import Ticks
from barnabas.streams.windows.watched import CLOCK, CLOSE
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.streams.clauses import RECORD_TIME

FORMAT = "barnabas-stream"
_FILES = "closefile", "holdfile", "replayfile", "foreseefile"
_RATE, _PERIOD, _JOINED = "bytespersecond", "period", "joined"
_PARSED, _PANES, _RULE = "parsed", "panes", "rule"
#: The mark and the foreseen watermark in an offset, and a table's ends. These cannot be topics' names.
_MARK, _AT, _TABLE = PLACE, "at", "#table"
# How long Spark waits for a batch before it does other things, such as checking whether to stop the query; and how long
# after a quiet period, when the source also rests between its looks.
WAIT_SECONDS, QUIET_WAIT_SECONDS = 0.5, 1.0
QUIET_SECONDS, REST_SECONDS = 10.0, 0.25
# The interval while there are records that wait for nothing, but may not be read yet.
_LOOK_SECONDS = 0.05
# Looks take at most a twentieth of a core, however many partitions there are.
_PARTS_OF_LOOKS = 20
# The end of a written log moves a little later; it is asked for again after a while in any case.
_SETTLED_SECONDS, _ASK_SECONDS = 2.0, 5.0
# So much of the log is read by one task. A second one would need a worker with 30 MB, and take longer than it spares.
_ONE_TASK_BYTES = 2 << 20
# A worker forgets a table that no task has requested for this long.
_FORGET_SECONDS = 600.0
# A worker runs many tasks. For each table, this has the time of the last request.
_tables: dict[tuple[str, str], tuple[float, Table]] = {}


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
    """The `wal` source with `closeFile` and other files, `bytesPerSecond`, `period`, `rule` and `joined`.

    The schema's last column is that of the marks, followed by that of the clock if there is a period, and then by that
    of a join. With `parsed`, a value must fit all of these columns, while the schema has only those that are needed.
    With `panes`, some rows stand for many (panes.py); their columns come before that of the marks.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        given = dict(options)
        own = (*_FILES, _RATE, _PERIOD, _JOINED, _PARSED, _PANES, _RULE)
        found = {name.lower(): given.pop(name) for name in list(given) if name.lower() in own}
        self._files = [found.get(name, "") for name in _FILES]
        self._rate = int(found.get(_RATE, "0"))
        self._period = found.get(_PERIOD, "")
        self._other = Other.decode(found.get(_JOINED, ""))
        self._parsed, self._panes = found.get(_PARSED, ""), panes_from(found.get(_PANES, ""))
        self._rule = Rule.decode(found.get(_RULE, ""))
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> MarkedReader:
        if WITHOUT_PANDAS in os.environ:
            import_arrow(numpy=True)
        inner = [field for field in schema.fields if field.name not in (CLOSE, CLOCK, OTHER)]
        if self._panes is not None:
            inner = inner[: -self._panes.added]
        ticks = Ticks(*_numbers(self._period)) if self._period else None
        others = None
        if self._other is not None:
            others = OtherRows(self._other, to_arrow_schema(schema, timezone="UTC").field(OTHER).type)
        rows, panes = self._rows(StructType(inner)), self._panes
        more: dict[str, Any] = {"rate": self._rate, "ticks": ticks, "others": others, "panes": panes}
        return MarkedReader(self._options, rows, *self._files, rule=self._rule, times=self._times(inner), **more)

    def _times(self, inner: list[StructField]) -> Rows | None:
        """Rows with only the event time and the record's own; None if these are the same."""
        if self._rule.time == RECORD_TIME or not self._rule.ends:
            return None
        found = [field for field in inner if field.name.lower() == self._rule.time.lower()]
        own = [field for field in inner if field.name == OWN_TIME]
        values = StructType(found)
        if self._options.format != "json":  # a field is found by what comes before it
            given = StructType.fromJson(json.loads(self._parsed)).fields if self._parsed else inner
            values = StructType([field for field in given if field.name not in META and field.name != CORRUPT])
        return rows_of(
            self._options, *(to_arrow_schema(each, timezone="UTC") for each in (StructType([*found, *own]), values))
        )

    def _rows(self, schema: StructType) -> Rows:
        if not self._parsed:
            return super()._rows(schema)
        parsed = StructType.fromJson(json.loads(self._parsed))
        return rows_of(self._options, *(to_arrow_schema(each, timezone="UTC") for each in (schema, parsed)))


class MarkPartition(InputPartition):
    """A mark, as one task's work."""

    def __init__(self, ms: int) -> None:
        super().__init__(ms)
        self.ms = ms


class RecordsPartition(InputPartition):
    """One task's splits, the time at which their records are read, and the ends of the table that they join."""

    def __init__(self, splits: Sequence[Split], ms: int, table: dict[int, int]) -> None:
        super().__init__(splits)
        self.splits, self.ms, self.table = splits, ms, table


def tasks_of(splits: Sequence[Split]) -> list[Sequence[Split]]:
    """The splits of each task: all in one if they are small together."""
    if sum(split.end - split.start for split in splits) > _ONE_TASK_BYTES:
        return [[split] for split in splits]
    return [splits] if splits else []


class MarkedReader(StreamReader):
    """Offsets are those of the `wal` source, plus the time of the last mark, and the ends of a table."""

    def __init__(
        self,
        options: Options,
        rows: Rows,
        close_file: str,
        hold_file: str = "",
        replay_file: str = "",
        foresee_file: str = "",
        *,
        rate: int = 0,
        ticks: Ticks | None = None,
        others: OtherRows | None = None,
        panes: Panes | None = None,
        rule: Rule = Rule(),  # noqa: B008  (frozen)
        times: Rows | None = None,
    ) -> None:
        """`rate` is in bytes of the log per second; 0 for no limit.

        `ticks` are those of windows by the clock, `others` are the rows of a join. `times` makes rows of event times if
        these are not the records' own.
        """
        super().__init__(options, rows)
        self._rule, self._times = rule, times
        self._due = Due(rule, lambda: time.monotonic())
        self._ahead: Ahead | None = None
        self._stamps: Stamps | None = None
        self._stamp: object = None
        self._grew_at = self._asked_at = 0.0
        self._last_start: dict[str, Any] | None = None
        self._watermark = self._owed = 0
        self._close_file, self._hold_file, self._foresee_file = close_file, hold_file, foresee_file
        self._foreseen = Foreseen(rows, rule)
        self._replay = Replay(replay_file) if replay_file else None
        self._changed_at = time.monotonic()
        self._rate, self._next_at = rate, 0.0
        kind = pa.timestamp("us", "UTC")
        self._ticks, self._others = ticks, others
        self._table_ends: dict[str, int] = {}
        own = [pa.field(name, kind) for name in ((CLOSE,) if ticks is None else (CLOSE, CLOCK))]
        if others is not None:
            own.append(pa.field(OTHER, others.kind))
        self._panes = panes
        target = rows.target if panes is None else [*rows.target, *panes.fields(rows.target)]
        self._schema = pa.schema([*target, *own])

    def initialOffset(self) -> dict[str, Any]:
        return _Parts(super().initialOffset(), 0, self._table_now(), 0).offset()

    def _table_now(self) -> dict[str, int]:
        """The ends of the table's partitions; empty if there is no table."""
        if self._others is None or not self._others.reads.is_table:
            return {}
        log_dir, _ = self._open()
        with contextlib.suppress(NotReadyError):  # keep the last known ends
            found = log_dir.ranges(log_dir.partitions(self._others.reads.source))
            self._table_ends = {str(number): end for (_, number), (_, end) in found.items()}
        return self._table_ends

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if self._replay is not None and (again := self._replay.next()) is not None:
            return again
        now = time.monotonic()
        is_quiet = now - self._changed_at >= QUIET_SECONDS
        until = now + (QUIET_WAIT_SECONDS if is_quiet else WAIT_SECONDS)
        # A batch has just completed: Spark may have another one to do, without records, that gives results.
        follows, self._last_start = start != self._last_start, start
        if follows:
            checkpoint = os.path.join(os.path.dirname(self._close_file), "checkpoint")
            self._watermark = next_watermark_ms(checkpoint)
            self._owed = owed_watermark_ms(checkpoint) if self._rule.ends else 0
        while True:
            began = time.thread_time()
            found, pause = self._look(start, limit)
            pause = max(pause, _PARTS_OF_LOOKS * (time.thread_time() - began), REST_SECONDS if is_quiet else 0.0)
            now = time.monotonic()
            if found != start:
                self._changed_at = now
            if found != start or self._target is not None or now >= until or (follows and not self._due.holds()):
                return found
            time.sleep(min(pause, until - now))

    def _look(self, start: dict[str, Any], limit: ReadLimit) -> tuple[dict[str, Any], float]:
        """The end of a due batch, or `start`; and the seconds until the next look."""
        if self._hold_file and os.path.exists(self._hold_file):
            return start, _LOOK_SECONDS
        plain, mark, table, foreseen = _apart(start)
        unread = self._unread(plain)
        closing = max(mark, read_mark(self._close_file)) if self._ticks is None else mark
        closes = closing > mark if self._ticks is None else self._ticks.is_over(mark)
        is_due = self._due.is_due(unread, self._watermark) or closes or self._target is not None
        ends, foreseen = plain, max(foreseen, self._owed)
        if is_due and unread.size and time.monotonic() >= self._next_at:
            ends = self._ends(plain, limit)
        latest = closing if self._ticks is None else self._ticks.next(mark, has_records=ends != plain)
        if ends != plain:
            table = self._table_now()
            read = from_wire(ends)[0]
            leaves = any(read.get(key, first) < end for key, (first, end) in self._seen.items())
            self._due.planned(unread, self._watermark, leaves=leaves)
            if not leaves and self._foresees():
                foreseen = max(foreseen, self._watermark_after(plain, read))
        if latest > mark and self._foresees():
            foreseen = max(foreseen, latest - self._rule.delay_ms)
        found = _Parts(ends, latest, table, foreseen)
        return found.offset(), self._due.look_again(unread, self._watermark)

    def _foresees(self) -> bool:
        """Whether the watermark after a batch may be part of its offset."""
        return bool(self._rule.ends) and os.path.exists(self._foresee_file)

    def _watermark_after(self, plain: dict[str, Any], read: Mapping[TopicPartition, int]) -> int:
        """The watermark after a batch that reads up to `read`; 0 if that is not known."""
        assert self._ahead is not None
        ranges = {key: (first, read.get(key, first)) for key, (first, _) in self._seen.items()}
        self._ahead.look(from_wire(plain)[0], ranges)
        return self._foreseen.watermark(self._ahead.parts)

    def _unread(self, plain: dict[str, Any]) -> Unread:
        """The unread data from an offset on."""
        if self._ahead is None:
            self._ahead = Ahead(self._open()[1], self._times, self._rule.ahead_ms)
        return self._ahead.look(from_wire(plain)[0], self._ranges())

    def _ranges(self) -> dict[TopicPartition, tuple[int, int]]:
        """The offsets that can be read. They are asked for again when the files have changed."""
        if self._stamps is None:
            self._stamps = Stamps(self._open()[0])
        now, stamp = time.monotonic(), self._stamps.of(self._seen)
        if stamp != self._stamp:
            self._stamp, self._grew_at = stamp, now
        if self._seen and now - self._grew_at >= _SETTLED_SECONDS and now - self._asked_at < _ASK_SECONDS:
            return self._seen
        self._asked_at = now
        return super()._ranges()

    def _ends(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch, within the rate limit."""
        if not self._rate:
            return self._in_time(start, super().latestOffset(start, limit))
        most = min(limit.max_bytes, self._rate) if isinstance(limit, ReadMaxBytes) else self._rate
        end = self._in_time(start, super().latestOffset(start, ReadMaxBytes(most)))
        if end != start:
            splits = [part.split for part in super().partitions(start, end) if isinstance(part, SplitPartition)]
            size = sum(split.end - split.start for split in splits)
            self._next_at = time.monotonic() + size / self._rate
        return end

    def _in_time(self, start: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
        """The end of a batch that leaves records for later, without those that are later than the oldest one left.

        The watermark follows the latest record of all partitions. If one partition were read further than another, it
        would make the other's rest late. The partition whose rest is the oldest keeps its end, so there is progress.
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
        """The time of the first record that a batch leaves; None if it leaves none."""
        return first_time(self._open()[1], key, at, self._seen.get(key, (0, 0))[1])

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        (began, before, _, _), (ends, mark, table, _) = _apart(start), _apart(end)
        splits = [part.split for part in super().partitions(began, ends) if isinstance(part, SplitPartition)]
        table_ends = {int(number): at for number, at in table.items()}
        found: list[InputPartition] = [RecordsPartition(task, mark, table_ends) for task in tasks_of(splits)]
        return [*found, MarkPartition(mark)] if mark > before else found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, MarkPartition):
            row = dict.fromkeys(self._schema.names) | {CLOSE: partition.ms * 1000}
            arrays = [
                pa.array([row[f.name]], pa.int64()).cast(f.type) if f.name == CLOSE else _blank(f) for f in self._schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            return
        assert isinstance(partition, RecordsPartition)
        for split in partition.splits:
            yield from self._of_split(split, partition)

    def _of_split(self, split: Split, task: RecordsPartition) -> Iterator[pa.RecordBatch]:
        others = self._others
        if others is not None and not others.reads.is_table and split.topic == others.reads.source:
            for rows in others.batches(split):
                nothing = [_blank(field, len(rows)) for field in self._schema if field.name != OTHER]
                yield pa.RecordBatch.from_arrays([*nothing, rows], schema=self._schema)
            return
        kind = self._schema.field(CLOSE).type
        batches = self._rows.batches(split)
        for batch in batches if self._panes is None else self._panes.folded(batches):
            columns = [*batch.columns, pa.nulls(batch.num_rows, kind)]
            if self._ticks is not None:
                columns.append(pa.repeat(pa.scalar(task.ms * 1000, kind), batch.num_rows))
            if others is not None:
                columns.append(self._joined(others, batch, task.table))
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _joined(self, others: OtherRows, batch: pa.RecordBatch, ends: Mapping[int, int]) -> pa.Array:
        """What a batch's records are joined with: their rows of the table, or nothing."""
        if not others.reads.is_table:
            return pa.nulls(batch.num_rows, others.kind)
        keys = batch.column(others.column)
        keys = keys if pa.types.is_binary(keys.type) else keys.cast(pa.string()).view(pa.binary())
        with self._table(others) as table:
            table.advance(ends)
            return table.find(keys)

    @contextlib.contextmanager
    def _table(self, others: OtherRows) -> Iterator[Table]:
        """This worker's table; one that has failed is forgotten."""
        now, name = time.monotonic(), (self._options.path, others.name)
        for other in [other for other, (at, _) in _tables.items() if now - at > _FORGET_SECONDS]:
            del _tables[other]
        _, table = _tables.pop(name, (now, None))
        table = table or Table(self._options.path, self._options.bootstrap, others)
        yield table
        _tables[name] = now, table


def first_time(planner: Planner, key: TopicPartition, lo: int, hi: int) -> int | None:
    """The time of the first record in [lo, hi), in ms since 1970; None if there is none. Raises WalError."""
    for split in planner.plan({key: (lo, hi)}):
        for batch in read(split, ["timestamp"], fail_on_data_loss=False):
            return int(batch.column(0)[0].cast(pa.int64()).as_py())
    return None


def _numbers(text: str) -> tuple[int, int]:
    one, other = text.split(",")
    return int(one), int(other)


def _blank(field: pa.Field, count: int = 1) -> pa.Array:
    """Values for a column in a mark or in a record of the other topic: null, or zeros if null is not possible."""
    if field.nullable:
        return pa.nulls(count, field.type)
    return pa.array([0 if pa.types.is_integer(field.type) else ""] * count, field.type)


def ends_of(offset: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """The source's own offsets in one of Spark's offsets."""
    ends, _ = from_wire(_apart(dict(offset)).plain)
    return ends


def mark_of(offset: Mapping[str, Any]) -> int:
    """The time of the last mark in one of Spark's offsets."""
    return _apart(dict(offset)).mark


class _Parts(NamedTuple):
    """An offset: the source's own, the mark's time, the ends of a table, and the watermark after the batch or 0."""

    plain: dict[str, Any]
    mark: int
    table: dict[str, int]
    foreseen: int

    def offset(self) -> dict[str, Any]:
        """The offset for Spark. It is a new one if anything is new."""
        told = {_AT: self.mark, FORESEEN: self.foreseen} if self.foreseen else {_AT: self.mark}
        return {**self.plain, _MARK: told, **({_TABLE: self.table} if self.table else {})}


def _apart(offset: dict[str, Any]) -> _Parts:
    plain = dict(offset)
    told, table = plain.pop(_MARK, {}), plain.pop(_TABLE, {})
    return _Parts(plain, int(told.get(_AT, 0)), table, int(told.get(FORESEEN, 0)))
