"""In a task: from splits of segment files to the rows that the SELECTs see.

The last row of a task is a mark. Only a writer that has seen the mark knows that all rows have arrived: when a task's
reader fails, the writer's input may end as if it were complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.streams.query.parts import END, PARTS, UNREADABLE
from barnabas.streams.query.reading import options_of
from barnabas.streams.query.room import Room, sizes_of
from barnabas.streams.query.tick import Tick, current
from barnabas.streams.source.json_values import why_malformed
from barnabas.streams.source.rows import converted
from barnabas.streams.source.typed import Parser, elements, parser_of
from barnabas.streams.source.weight import pieces, width, without_heavy_ones
from barnabas.streams.source.where import Condition, mask
from barnabas.streams.wal import read
from barnabas.wire.batch import MAX_DECOMPRESSED
from barnabas.wire.queries.plan import Values

#: The record's column for each part.
_BEHIND = {name: name[1:] for name in PARTS}
_REASON = "reason"


class Gauge(Protocol):
    """Weighs the rows of a task before they are made."""

    @property
    def most_in_batch(self) -> int:
        """The most bytes that a batch of the log may decompress to."""
        ...

    def take(self, offsets: pa.Array, sizes: pa.Array) -> None:
        """Count rows of these sizes in bytes. Raises whatever must end the task."""
        ...


class Scan(msgspec.Struct, frozen=True):
    """How to make rows.

    `target` are their columns; `values` is the whole schema that every value must fit (empty if no query needs typed
    columns), in the format of `reading`.
    A row that is readable must meet all conditions of one of `kept`, otherwise it is left out; without any, all rows
    are returned. `names` is the most bytes that queries write besides the columns of a row.
    """

    target: pa.Schema
    values: pa.Schema
    reading: Values = Values(format="json")
    kept: list[tuple[Condition, ...]] = []
    names: int = 0

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the tasks whose numbers come in."""
        tick, _, _ = current()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self.rows(tick, number)

    def rows(self, tick: Tick, number: int) -> Iterator[pa.RecordBatch]:
        """All rows of one task, and the mark. Raises WalError for data loss or damage."""
        part = tick.parts[number]
        if part.lo < part.hi:
            yield from self.records(tick, number, Room(tick) if tick.rows else None)
            yield self._mark(part.partition, part.hi)

    def records(self, tick: Tick, number: int, gauge: Gauge | None = None) -> Iterator[pa.RecordBatch]:
        """All rows of one task, without the mark.

        Raises WalError for data loss or damage, TooMuchError for a batch that is too large for the gauge, and what the
        gauge raises.
        """
        wanted = {_BEHIND[f.name] for f in self.target if f.name in PARTS}
        if self.values.names:
            wanted |= {"key", "value", "timestamp", "headers"}
        options = options_of(self.reading)
        parser = parser_of(options, self.values) if self.values.names else None
        most = MAX_DECOMPRESSED if gauge is None else gauge.most_in_batch
        each = width(self.target) + self.names
        for split in tick.splits(tick.parts[number]):
            for found in read(split, sorted(wanted), most=most):
                weights = elements(options, found.column("value"), self.values) if parser else None
                if gauge is not None:
                    gauge.take(found.column("offset"), sizes_of(found, each, without_heavy_ones(weights)))
                for piece in pieces(found, width(self.values) + self.names, weights):
                    yield self._rows(piece, parser)

    def _rows(self, found: pa.RecordBatch, parser: Parser | None) -> pa.RecordBatch:
        count = found.num_rows
        parsed, bad = parser(found.column("value")) if parser is not None else (None, [])
        arrays = []
        for field in self.target:
            if field.name == UNREADABLE:
                arrays.append(self._unreadable(found, bad, field.type))
            elif field.name == END:
                arrays.append(pa.repeat(pa.scalar(False), count))
            elif field.name in _BEHIND:
                arrays.append(converted(found.column(_BEHIND[field.name]), field.type))
            else:
                assert parsed is not None
                arrays.append(parsed[field.name].combine_chunks().cast(field.type))
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.target)
        return rows.filter(self._wanted(rows)) if self.kept else rows

    def _wanted(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        wanted = rows.column(UNREADABLE).is_valid()
        for conditions in self.kept:
            wanted = pc.or_(wanted, mask(conditions, rows))
        return wanted

    def _unreadable(self, found: pa.RecordBatch, bad: list[int], kind: pa.StructType) -> pa.Array:
        """The records with the numbers `bad` as they were, and why; null for all others."""
        if not bad:
            return pa.nulls(found.num_rows, kind)
        records = found.take(pa.array(bad))
        parts = [converted(records.column(field.name), field.type) for field in kind if field.name != _REASON]
        reasons = pa.array([self._why(value) for value in records.column("value").to_pylist()], pa.string())
        were = pa.StructArray.from_arrays([*parts, reasons], fields=list(kind))
        numbers: list[int | None] = [None] * found.num_rows
        for at, number in enumerate(bad):
            numbers[number] = at
        return were.take(pa.array(numbers, pa.int64()))

    def _why(self, value: bytes) -> str:
        if self.reading.format == "json":
            return why_malformed(value, self.values)
        return f"the value does not fit the schema as {self.reading.format}"

    def _mark(self, partition: int, offset: int) -> pa.RecordBatch:
        told = {END: True, "_partition": partition, "_offset": offset}
        arrays = [pa.array([told.get(field.name)], field.type) for field in self.target]
        return pa.RecordBatch.from_arrays(arrays, schema=self.target)
