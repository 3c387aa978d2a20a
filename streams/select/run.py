"""Computes the results of a query: rows as they come, the first rows of an order, or groups.

Memory is bounded: a query without ORDER BY and GROUP BY keeps one batch, ORDER BY keeps the rows of its LIMIT, GROUP BY
keeps MOST_GROUPS. A query that would need more raises NeedsSpark before any row is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from barnabas.streams.query.definitions import Source
from barnabas.streams.query.plain import typed_columns
from barnabas.streams.select.aggregates import Room, State
from barnabas.streams.select.errors import NeedsSpark
from barnabas.streams.select.plan import MOST_SORTED, Grouped, Output, Planned, Sorted
from barnabas.streams.select.scan import Batch, Scan
from barnabas.streams.select.typed import TIME, Values, group_key, sort_key
from barnabas.streams.wal import LogDir

MOST_GROUPS = 200_000
MOST_SORTED_BYTES = 256 << 20


class Result(NamedTuple):
    """Names and types, and the rows as they come."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    #: How many records have been read so far.
    read: Callable[[], int]


def run(log_dir: LogDir, source: Source, planned: Planned, limit: int) -> Result:
    """At most `limit` results of a query.

    The iterator raises NeedsSpark only before its first batch, and WalError.
    """
    scan = Scan(log_dir, source.values, typed_columns(source.values) or pa.schema([]), planned)
    limit = limit if planned.limit is None else min(limit, planned.limit)
    return Result(planned.schema, _limited(_batches(scan, planned, limit), planned.offset, limit), lambda: scan.read)


def run_once(planned: Planned, limit: int) -> Result:
    """The single row of a query without FROM."""
    row = Batch(pa.RecordBatch.from_arrays([pa.nulls(1)], names=["_"]))
    return Result(planned.schema, _limited(iter([_outputs(planned.outputs, row)]), 0, limit), lambda: 0)


def _batches(scan: Scan, planned: Planned, limit: int) -> Iterator[pa.RecordBatch]:
    if not limit:
        return
    grouped, wanted = planned.grouped, planned.offset + limit
    if grouped is not None:
        rows: _Gathered | Batch = _gathered(scan, grouped)
        if grouped.having is not None:
            rows = rows.where([each is True for each in grouped.having.values(rows)])
        made = _outputs(planned.outputs, rows)
        if planned.order:
            order = _sorted(planned.order, [each.of.values(rows) for each in planned.order])
            made = made.take(pa.array(order, pa.int64()))
        yield made
    elif planned.order:
        if wanted > MOST_SORTED:
            raise NeedsSpark(f"it sorts more than {MOST_SORTED:,} rows")
        newest = _Newest(planned, wanted)
        for batch in _tails(scan, wanted) if planned.is_tail else scan.forwards():
            newest.add(batch)
        yield newest.rows()
    else:
        began = False
        for batch in scan.forwards():
            try:
                made = _outputs(planned.outputs, batch)
            except NeedsSpark as error:
                if began:
                    raise TooLateError(str(error)) from None
                raise
            began = True
            yield made


class TooLateError(Exception):
    """A later row needs Spark, but earlier results have already been returned."""


def _limited(batches: Iterator[pa.RecordBatch], offset: int, limit: int) -> Iterator[pa.RecordBatch]:
    for rows in batches:
        skipped = min(offset, rows.num_rows)
        offset -= skipped
        found = rows.slice(skipped, limit)
        limit -= found.num_rows
        if found.num_rows:
            yield found
        if limit <= 0:
            return


def _outputs(outputs: Sequence[Output], rows: Batch | _Gathered) -> pa.RecordBatch:
    arrays = []
    for each in outputs:
        if each.column and isinstance(rows, Batch):
            arrays.append(rows.rows.column(each.column))
        else:
            arrays.append(_array(each.of.values(rows), each.of.kind))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([(each.name, each.of.kind) for each in outputs]))


def _array(values: Values, kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int64()).cast(kind) if kind == TIME else pa.array(values, kind)


# --- orders -----------------------------------------------------------------------------------------------------------


def _sorted(order: Sequence[Sorted], columns: Sequence[Values]) -> list[int]:
    """The indexes of the rows in order. The last column is sorted first, because equal rows keep their order."""
    found = list(range(len(columns[0])))
    for each, values in reversed([*zip(order, columns, strict=True)]):
        key = sort_key(each.of.kind)
        last = each.nulls_first == each.descending  # whether nulls come first before the reversal
        keys = [(last, None) if v is None else (not last, key(v)) for v in values]
        found.sort(key=keys.__getitem__, reverse=each.descending)
    return found


class _Newest:
    """The first rows of an order."""

    def __init__(self, planned: Planned, wanted: int) -> None:
        self._planned, self._wanted = planned, wanted
        self._rows: list[pa.RecordBatch] = []
        self._keys: list[Values] = [[] for _ in planned.order]
        self._bytes = 0

    def add(self, batch: Batch) -> None:
        made = _outputs(self._planned.outputs, batch)
        self._rows.append(made)
        self._bytes += made.nbytes
        for kept, each in zip(self._keys, self._planned.order, strict=True):
            kept += each.of.values(batch)
        if len(self._keys[0]) > 4 * self._wanted + 10_000 or self._bytes > MOST_SORTED_BYTES:
            self._keep()

    def rows(self) -> pa.RecordBatch:
        """All wanted rows, in order."""
        self._keep()
        return self._rows[0]

    def _keep(self) -> None:
        order = _sorted(self._planned.order, self._keys)[: self._wanted]
        whole = pa.Table.from_batches(self._rows, schema=self._planned.schema)
        kept = whole.take(pa.array(order, pa.int64())).combine_chunks()
        self._rows = kept.to_batches() or [pa.RecordBatch.from_pylist([], schema=self._planned.schema)]
        self._keys = [[values[at] for at in order] for values in self._keys]
        self._bytes = kept.nbytes
        if self._bytes > MOST_SORTED_BYTES:
            raise NeedsSpark("the rows that it sorts are large")


def _tails(scan: Scan, wanted: int) -> Iterator[Batch]:
    """The newest rows of each partition: as many as are wanted, and some more."""
    for key, (lo, hi) in scan.ranges().items():
        found = 0
        for piece in scan.backwards(key, lo, hi, wanted):
            yield from piece
            found += sum(map(len, piece))
            if found >= wanted:
                break


# --- groups -----------------------------------------------------------------------------------------------------------


class _Gathered:
    """Groups as rows: their grouping values and aggregates."""

    def __init__(self, columns: dict[str, Values], count: int) -> None:
        self._columns, self._count = columns, count

    def __len__(self) -> int:
        return self._count

    def values(self, name: str) -> Values:
        return self._columns[name]

    def where(self, keep: Sequence[Any]) -> _Gathered:
        kept = {
            name: [each for each, wanted in zip(values, keep, strict=True) if wanted]
            for name, values in self._columns.items()
        }
        return _Gathered(kept, sum(map(bool, keep)))


def _gathered(scan: Scan, grouped: Grouped) -> _Gathered:
    groups: dict[tuple[Any, ...], list[State]] = {}
    room = Room()

    def group(key: tuple[Any, ...]) -> list[State]:
        if key not in groups:
            if len(groups) >= MOST_GROUPS:
                raise NeedsSpark(f"there are more than {MOST_GROUPS:,} groups")
            room.take(key)
            groups[key] = [each.begin() for each in grouped.aggregates]
        return groups[key]

    if not grouped.by:
        group(())
    for batch in scan.forwards():
        counted = range(len(batch))
        given = [counted if each.of is None else each.of.values(batch) for each in grouped.aggregates]
        if not grouped.by:
            for state, values in zip(group(()), given, strict=True):
                state.add(values)
            continue
        places: dict[tuple[Any, ...], list[int]] = {}
        keys = [map(group_key(each.kind), each.values(batch)) for each in grouped.by]
        for at, key in enumerate(zip(*keys, strict=True)):
            places.setdefault(key, []).append(at)
        for key, rows in places.items():
            for state, values in zip(group(key), given, strict=True):
                state.add([values[at] for at in rows])
    found = {f"g{at}": [key[at] for key in groups] for at in range(len(grouped.by))}
    found |= {f"a{at}": [states[at].result() for states in groups.values()] for at in range(len(grouped.aggregates))}
    return _Gathered(found, len(groups))
