"""Checks the columns of rows and casts them to the few Arrow types that the backends read."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.streams.decode.types import HEADERS
from barnabas.wire.batch import NO_TIMESTAMP

_BLOBS = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.null())


class Columns(NamedTuple):
    """Arrays of equal length. Only `key`, `value` and `contents` may contain nulls.

    `names` and `contents` have one row for each header; those of row i are at `lists[i]` to `lists[i + 1] - 1`.
    """

    offset: pa.Array  # int64
    timestamp: pa.Array  # int64, ms since 1970 or -1
    key: pa.Array  # large_binary
    value: pa.Array  # large_binary
    lists: pa.Array  # int64, one more than there are rows
    names: pa.Array  # large_string
    contents: pa.Array  # large_binary


def columns_of(rows: pa.RecordBatch, base_offset: int) -> Columns:
    """The columns of `rows`; see `streams.encode.encode`. Raises ValueError for rows that cannot become records."""
    if base_offset < 0:
        raise ValueError(f"base offset {base_offset}: offsets begin at 0")
    lists, names, contents = _headers(_column(rows, "headers", HEADERS))
    return Columns(
        _offsets(rows, base_offset),
        _timestamps(_column(rows, "timestamp", pa.timestamp("ms"))),
        _blobs("key", _column(rows, "key", pa.binary())),
        _blobs("value", _column(rows, "value", pa.binary())),
        lists,
        names,
        contents,
    )


def _column(rows: pa.RecordBatch, name: str, otherwise: pa.DataType) -> pa.Array:
    return rows.column(name) if name in rows.schema.names else pa.nulls(rows.num_rows, otherwise)


def _offsets(rows: pa.RecordBatch, base_offset: int) -> pa.Array:
    if "offset" not in rows.schema.names or rows.column("offset").type != pa.int64():
        raise ValueError("the rows need a column offset of type int64")
    offsets = rows.column("offset")
    if offsets.null_count:
        raise ValueError("a row without an offset")
    if len(offsets) and offsets[0].as_py() < base_offset:
        raise ValueError(f"offset {offsets[0]} lies below the base offset {base_offset}")
    if not pc.all(pc.greater(offsets[1:], offsets[:-1]), min_count=0).as_py():
        raise ValueError("the offsets of the rows do not go up: sort the rows by offset, without doubles")
    return offsets


def _timestamps(times: pa.Array) -> pa.Array:
    """Milliseconds; microseconds are truncated."""
    if not pa.types.is_timestamp(times.type) or times.type.unit not in ("ms", "us"):
        raise ValueError(f"the column timestamp is of type {times.type}: expected timestamp[ms] or timestamp[us]")
    millis = times.cast(pa.timestamp("ms", times.type.tz), safe=False)
    return millis.cast(pa.int64()).fill_null(NO_TIMESTAMP)


def _blobs(name: str, blobs: pa.Array) -> pa.Array:
    if blobs.type not in _BLOBS:
        raise ValueError(f"the column {name} is of type {blobs.type}: expected binary or string")
    return blobs.cast(pa.large_binary())


def _headers(headers: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    kind = headers.type
    if not (
        (pa.types.is_list(kind) or pa.types.is_large_list(kind))
        and pa.types.is_struct(kind.value_type)
        and {field.name for field in kind.value_type} == {"key", "value"}
    ):
        raise ValueError(f"the column headers is of type {kind}: expected list<struct<key: string, value: binary>>")
    counts = pc.list_value_length(headers).cast(pa.int64()).fill_null(0)
    lists = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(counts)])
    pairs = dict(zip((field.name for field in kind.value_type), headers.flatten().flatten(), strict=True))
    if pairs["key"].type not in (pa.string(), pa.large_string()):
        raise ValueError(f"the keys of the headers are of type {pairs['key'].type}: expected string")
    if pairs["key"].null_count:
        raise ValueError("a header without a key")
    names = pairs["key"].cast(pa.large_string())
    names.validate(full=True)  # checks that they are UTF-8
    return lists, names, _blobs("headers.value", pairs["value"])
