"""Estimates the memory that values take as typed columns, from the schema and the values' bytes, before they are
parsed.

A column has a cell in every row, whether the value names it or not: a value of two bytes (`{}`) fills all columns of
its schema, and two bytes inside an array fill all columns of its elements. A client chooses both.

Invariant: the values that are parsed together take about `PIECE_BYTES` beyond their own bytes, or are one value of at
most `MAX_VALUE_BYTES`. A value that would take more is malformed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

PIECE_BYTES = 16 << 20
MAX_VALUE_BYTES = 64 << 20
_CELL = 8  # a number, or the end of a text or a list, with its null bit
# An object or a null as an array element. A text may contain the same bytes, so the count may be too large, never too
# small.
_ELEMENT = r"[\[,][ \t\r\n]*[{n]"


def width(kind: pa.DataType | pa.Schema) -> int:
    """The bytes of one row's cell, including nested ones."""
    if isinstance(kind, pa.Schema) or pa.types.is_struct(kind):
        return sum(width(field.type) for field in kind) + 1
    return 2 * _CELL if pa.types.is_decimal(kind) else _CELL


def element_width(kind: pa.DataType | pa.Schema) -> int:
    """The bytes of the widest array element of a type; 0 if no array has structs.

    Elements without structs are at most a few times as wide as their bytes.
    """
    if isinstance(kind, pa.Schema) or pa.types.is_struct(kind):
        return max((element_width(field.type) for field in kind), default=0)
    if not pa.types.is_list(kind):
        return 0
    item = kind.value_type
    return max(width(item) if pa.types.is_struct(item) else 0, element_width(item))


def elements_of_json(values: pa.Array, schema: pa.Schema) -> pa.Array | None:
    """The most bytes that each value's array elements take; None if there is nothing to count."""
    each = element_width(schema)
    if not each:
        return None
    texts = values.fill_null(b"")
    return pc.multiply(pc.count_substring_regex(texts, _ELEMENT).cast(pa.int64()), each)


def too_heavy(weights: pa.Array | None) -> list[int]:
    """The indexes of the values that take too much."""
    if weights is None or not len(weights) or pc.max(weights).as_py() <= MAX_VALUE_BYTES:
        return []
    heavy: list[int] = pc.indices_nonzero(pc.greater(weights, MAX_VALUE_BYTES)).to_pylist()
    return heavy


def without_heavy_ones(weights: pa.Array | None) -> pa.Array | None:
    """The weights of the values to parse. Too heavy values become nulls."""
    return None if weights is None else pc.if_else(pc.greater(weights, MAX_VALUE_BYTES), 0, weights)


def why_too_heavy(weight: int) -> str:
    """The message about such a value."""
    return f"the value would take {weight:,} bytes as columns: at most {MAX_VALUE_BYTES:,} are possible"


def pieces(rows: pa.RecordBatch, each: int, weights: pa.Array | None) -> Iterator[pa.RecordBatch]:
    """The rows in parts, to be parsed one after the other: a row takes `each` bytes, plus its weight."""
    most = max(1, PIECE_BYTES // max(each, 1))
    if weights is None or pc.sum(weights).as_py() + each * rows.num_rows <= PIECE_BYTES:
        for start in range(0, rows.num_rows, most):
            yield rows.slice(start, most)
        return
    start, held = 0, 0
    for number, weight in enumerate(weights.to_pylist()):
        takes = each + min(weight, MAX_VALUE_BYTES)
        if number > start and held + takes > PIECE_BYTES:
            yield rows.slice(start, number - start)
            start, held = number, 0
        held += takes
    yield rows.slice(start)
