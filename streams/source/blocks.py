"""Parses many values at once, and one by one around the malformed ones.

The result for a record never depends on its neighbours: a block that does not parse as a whole is halved until the
malformed records stand alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

T = TypeVar("T")
#: A table with a row for each value, and the indexes of the malformed ones, whose rows are null.
Parsed = tuple[pa.Table, list[int]]


def in_blocks(items: Sequence[T], parse: Callable[[Sequence[T]], pa.Table], schema: pa.Schema) -> Parsed:
    """Parse the items. `parse` returns one row for each item in columns of `schema`, or raises ArrowInvalid."""
    parts: list[pa.Table] = []
    bad: list[int] = []
    _halve(items, 0, parse, schema, parts, bad)
    return pa.concat_tables(parts), bad


def _halve(
    items: Sequence[T],
    at: int,
    parse: Callable[[Sequence[T]], pa.Table],
    schema: pa.Schema,
    parts: list[pa.Table],
    bad: list[int],
) -> None:
    try:
        parts.append(parse(items))
    except pa.ArrowInvalid:
        if len(items) == 1:
            bad.append(at)
            parts.append(nulls(1, schema))
            return
        middle = len(items) // 2
        _halve(items[:middle], at, parse, schema, parts, bad)
        _halve(items[middle:], at + middle, parse, schema, parts, bad)


def without_nulls(values: pa.Array, parse: Callable[[pa.Array], Parsed]) -> Parsed:
    """Parse the values that are not null. A null value gives a row of nulls, and is not malformed."""
    if not values.null_count:
        return parse(values)
    there = [number for number, valid in enumerate(values.is_valid().to_pylist()) if valid]
    table, bad = parse(values.drop_null())
    rows: list[int | None] = [None] * len(values)
    for row, number in enumerate(there):
        rows[number] = row
    return table.take(pa.array(rows, pa.int64())), [there[row] for row in bad]


def without_heavy(values: pa.Array, heavy: list[int], parse: Callable[[pa.Array], Parsed]) -> Parsed:
    """Parse all values except the `heavy` ones, which count as malformed and are not parsed at all."""
    if not heavy:
        return parse(values)
    left_out = set(heavy)
    kept = pa.array([number not in left_out for number in range(len(values))])
    table, bad = parse(pc.if_else(kept, values, pa.scalar(None, values.type)))
    return table, sorted(left_out.union(bad))


def nulls(count: int, schema: pa.Schema) -> pa.Table:
    """Rows of nulls."""
    return pa.table([pa.nulls(count, field.type) for field in schema], schema=schema)
