"""The decoder in C: its buffers as Arrow arrays. Importing this raises ImportError if the C module was not built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from barnabas.streams.decode import _native
from barnabas.streams.decode.batches import Records
from barnabas.streams.decode.types import HEADER, HEADERS, SCHEMA
from barnabas.wire.errors import ErrorCode, KafkaError

# The C side's numbers of the columns, in the order of its returned buffers.
_FLAGS = {"offset": 4, "timestamp": 8, "timestampType": 16, "key": 1, "value": 2, "headers": 32}


def decode_native(records: Sequence[Records], columns: Sequence[str]) -> tuple[int, dict[str, pa.Array]]:
    """See `streams.decode.decode`."""
    batches = [
        (
            data,
            header.records_count,
            header.last_offset_delta,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp,
            header.timestamp_type,
            lo,
            hi,
        )
        for header, data, lo, hi in records
    ]
    try:
        rows, *blocks = _native.decode(batches, sum(_FLAGS[name] for name in set(columns)))
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    buffers = iter([pa.py_buffer(block) for block in blocks])
    return rows, {name: _array(name, rows, buffers) for name in _FLAGS if name in columns}


def _array(name: str, rows: int, buffers: Iterator[pa.Buffer]) -> pa.Array:
    if name == "headers":
        lists, valid = next(buffers), next(buffers)
        count = pa.Array.from_buffers(pa.int32(), rows + 1, [None, lists])[rows].as_py()
        names = _blobs(pa.string(), count, buffers)
        values = _blobs(pa.binary(), count, buffers)
        pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADER))
        return pa.Array.from_buffers(HEADERS, rows, [valid, lists], children=[pairs])
    kind = SCHEMA.field(name).type
    if kind == pa.binary():
        return _blobs(kind, rows, buffers)
    return pa.Array.from_buffers(kind, rows, [None, next(buffers)])


def _blobs(kind: pa.DataType, rows: int, buffers: Iterator[pa.Buffer]) -> pa.Array:
    offsets, data, valid = next(buffers), next(buffers), next(buffers)
    return pa.Array.from_buffers(kind, rows, [valid, offsets, data])
