"""Aggregation in the reader: the records of a key that are in the same windows become one row.

    key   time      temp            key   time      temp   records  sum(temp)  count(temp)
    a     10:00:01  1        ->     a     10:00:07         3        6          2
    a     10:00:07
    a     10:00:04  5

Time is divided into panes: the longest spans such that each window of each stream of the query is a whole number of
panes. The key consists of all columns that the streams' conditions and keys use. A pane's row has the latest of its
records' times, so the watermark and the late records stay the same. Beside its key it has the number of its records,
and their sums, counts, least and greatest values.

Invariant: results equal those of the single records, except for the last digits of sums of doubles. Records that do not
fit (no time, a time before 1970 or too far ahead, a malformed value, a record that not all streams take, a NaN where
the least or greatest is needed) stay rows of their own, and the plan decides on them. So do all rows of a stretch in
which few records share a key and pane.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.streams.source.names import CORRUPT

#: A column of the source: how many records a row stands for; null for a row that is one record.
STANDS_FOR = "__pane_records"
_TIME, _PARTITION, _OFFSET = "_timestamp", "_partition", "_offset"
# The most rows, and bytes, that are folded together.
STRETCH_ROWS, _STRETCH_BYTES = 1 << 17, 16 << 20
# Rows are passed on in batches of this size, which stay in a core's cache.
_BATCH_ROWS = 1 << 13
# A stretch with fewer rows than this, or whose folding would leave more than this share, is passed on unchanged.
WORTH, LEAST_ROWS = 0.7, 512
PANE = "__pane"
_NEGATIVE_ZERO = -(1 << 63)


class Carrier(msgspec.Struct, frozen=True):
    """A column with an aggregate of another column: sum, count, min or max."""

    function: str
    column: str

    @property
    def name(self) -> str:
        """Its name as a column of the source. Without a column, it is the number of records."""
        return f"__pane_{self.function}_{self.column}" if self.column else STANDS_FOR


class Panes(msgspec.Struct, frozen=True):
    """What the reader must know: panes, keys, carriers, and which records it may fold."""

    pane_us: int
    time: str
    keys: tuple[str, ...]
    carriers: tuple[Carrier, ...]
    ahead_us: int = 0  # how far an event time from a column may be after the record's own
    starts: tuple[int, ...] = ()  # by partition: some streams do not take earlier records
    stretch_rows: int = STRETCH_ROWS
    least_rows: int = LEAST_ROWS
    worth: float = WORTH

    @property
    def added(self) -> int:
        """How many columns it adds."""
        return 1 + len(self._carried())

    def folded(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of a split of one partition, with the carriers after their columns."""
        held: list[pa.RecordBatch] = []
        rows = size = 0
        is_worth = True
        for batch in batches:
            if not is_worth:
                yield self._plain(batch)
                continue
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= self.stretch_rows or size >= _STRETCH_BYTES:
                found = self._folded(held)
                is_worth = found is not None
                yield from found or map(self._plain, held)
                held, rows, size = [], 0, 0
        if held:
            yield from self._folded(held) or map(self._plain, held)

    def _folded(self, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch] | None:
        """A stretch folded into fewer rows; None if there would not be much fewer."""
        table = pa.Table.from_batches(batches)
        if table.num_rows < self.least_rows or not self._is_exact(table):
            return None
        fits = self._fitting(table)
        taken = table if fits is None else table.filter(fits)
        times = taken.column(self.time).cast(pa.int64())
        panes = pc.divide(times, self.pane_us)
        grouped = taken.append_column(PANE, panes).group_by([PANE, *self.keys], use_threads=False)
        aggregates = self._aggregates(table.schema)
        made = grouped.aggregate([([], "count_all"), *aggregates])
        left = table.num_rows - taken.num_rows
        if made.num_rows + left > table.num_rows * self.worth:
            return None
        # By position, because a client's columns may have any names.
        groups = dict(zip(((each, "") for each in (PANE, *self.keys)), made.columns, strict=False))
        groups |= zip((("", ""), *aggregates), made.columns[len(groups) :], strict=True)
        found: list[pa.RecordBatch] = self._with_columns(groups, made.num_rows, table.schema).to_batches(_BATCH_ROWS)
        if fits is not None:
            found += map(self._plain, table.filter(pc.invert(fits)).to_batches(_BATCH_ROWS))
        return found

    def _is_exact(self, table: pa.Table) -> bool:
        """Whether integer sums cannot overflow, and the minimum of the two zeros does not depend on their order."""
        for carrier in self.carriers:
            column = table.column(carrier.column) if carrier.column else None
            if column is None:
                continue
            if carrier.function == "sum" and column.type == pa.int64():
                least, most = pc.min_max(column).values()
                if max(-(least.as_py() or 0), most.as_py() or 0) >= 2**63 // table.num_rows:
                    return False
            if carrier.function in ("min", "max") and pa.types.is_floating(column.type):
                bits = column.cast(pa.float64()).combine_chunks().view(pa.int64())
                if pc.any(pc.equal(bits, _NEGATIVE_ZERO)).as_py():
                    return False
        return True

    def _fitting(self, table: pa.Table) -> pa.ChunkedArray | None:
        """Which rows may be folded with others; None for all."""
        conditions = []
        times = table.column(self.time).cast(pa.int64())
        if times.null_count or pc.min(times).as_py() < 0:
            conditions.append(pc.greater_equal(times, 0))
        if self.time != _TIME:
            own = table.column(_TIME).cast(pa.int64())
            conditions.append(pc.less_equal(pc.subtract(times, self.ahead_us), own))
        if CORRUPT in table.schema.names and table.column(CORRUPT).null_count < table.num_rows:
            conditions.append(pc.is_null(table.column(CORRUPT)))
        partition = table.column(_PARTITION)[0].as_py()
        start = self.starts[partition] if partition < len(self.starts) else 0
        if table.column(_OFFSET)[0].as_py() < start:
            conditions.append(pc.greater_equal(table.column(_OFFSET), start))
        for name in {each.column for each in self.carriers if each.function in ("min", "max")}:
            column = table.column(name)
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                conditions.append(pc.invert(pc.fill_null(pc.is_nan(column), False)))
        if not conditions:
            return None
        return pc.fill_null(reduce(pc.and_kleene, conditions), False)

    def _aggregates(self, schema: pa.Schema) -> list[tuple[str, str]]:
        """What to compute for a group of rows: the carriers, and the columns that the plan needs."""
        found = [(each.column, each.function) for each in self._carried()]
        found += [(name, "max") for name in self._latest(schema)]
        return list(dict.fromkeys([*found, (_OFFSET, "min"), (_PARTITION, "min")]))

    def _latest(self, schema: pa.Schema) -> list[str]:
        return [name for name in dict.fromkeys((self.time, _TIME)) if name in schema.names and name not in self.keys]

    def _with_columns(
        self, groups: Mapping[tuple[str, str], pa.ChunkedArray], rows: int, schema: pa.Schema
    ) -> pa.Table:
        """The groups as rows of the source, with null for columns that they lack."""
        of = dict.fromkeys(self._latest(schema), "max") | dict.fromkeys((_OFFSET, _PARTITION), "min")
        of |= dict.fromkeys(self.keys, "")
        arrays = [
            groups[field.name, of[field.name]] if field.name in of else pa.nulls(rows, field.type) for field in schema
        ]
        fields = self.fields(schema)
        carried = [groups["", ""], *(groups[each.column, each.function] for each in self._carried())]
        arrays += [column.cast(field.type) for column, field in zip(carried, fields, strict=True)]
        return pa.table(arrays, schema=pa.schema([*schema, *fields]))

    def _plain(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        fields = self.fields(batch.schema)
        arrays = [*batch.columns, *(pa.nulls(batch.num_rows, field.type) for field in fields)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*batch.schema, *fields]))

    def _carried(self) -> list[Carrier]:
        return [each for each in self.carriers if each.column]

    def fields(self, schema: pa.Schema) -> list[pa.Field]:
        """The columns added to those of `schema`."""
        found = [pa.field(STANDS_FOR, pa.int64())]
        for each in self._carried():
            is_double = each.function != "count" and pa.types.is_floating(schema.field(each.column).type)
            found.append(pa.field(each.name, pa.float64() if is_double else pa.int64()))
        return found


def panes_from(option: str) -> Panes | None:
    """The panes in an option of the source; None if it is empty."""
    return msgspec.json.decode(option, type=Panes) if option else None
