"""Arrow rows as JSON values, which a person or a program can read without Arrow.

Bytes and texts that are not UTF-8 become text with \\xNN, times ISO 8601 in UTC, decimals their digits.
"""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa


def plain_rows(batch: pa.RecordBatch | pa.Table) -> list[list[Any]]:
    """The rows as lists of plain values."""
    columns = [_values(column) for column in batch.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _values(column: Any) -> list[Any]:
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in _values(chunk)]
    return [plain(each) for each in _as_bytes(column).to_pylist()]


def _as_bytes(array: pa.Array) -> pa.Array:
    """Texts as bytes if Python does not accept them as UTF-8, at any depth."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            return array.view(pa.binary() if pa.types.is_string(kind) else pa.large_binary())
        return array
    if pa.types.is_list(kind):
        inner = _as_bytes(array.values)
        return pa.Array.from_buffers(
            pa.list_(inner.type), len(array), array.buffers()[:2], array.null_count, array.offset, [inner]
        )
    if pa.types.is_struct(kind):
        inner = [_as_bytes(array.field(at)) for at in range(kind.num_fields)]
        names = [kind.field(at).name for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(inner, names=names, mask=array.is_null())
    return array


def plain(value: Any) -> Any:
    """A row's value as a plain value."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, datetime.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | datetime.timedelta):
        return str(value)
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    return value
