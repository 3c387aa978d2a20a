"""The encoder in C, given the buffers of the Arrow arrays. Importing this raises ImportError if it was not built."""

from __future__ import annotations

import pyarrow as pa

from barnabas.streams.encode import _native
from barnabas.streams.encode.columns import Columns
from barnabas.streams.encode.written import Writer, Written

_INT64_BYTES = 8


def writer_in_c(columns: Columns) -> Writer:
    """See `streams.encode.written`."""
    offset, timestamp, lists = (_numbers(array) for array in (columns.offset, columns.timestamp, columns.lists))
    key, value = _blobs(columns.key), _blobs(columns.value)
    names, contents = _blobs(columns.names), _blobs(columns.contents)

    def write(row: int, base_offset: int, max_bytes: int) -> Written:
        return Written(
            *_native.encode(offset, timestamp, lists, key, value, names, contents, row, base_offset, max_bytes)
        )

    return write


def _numbers(array: pa.Array) -> pa.Buffer:
    return array.buffers()[1].slice(array.offset * _INT64_BYTES, len(array) * _INT64_BYTES)


def _blobs(array: pa.Array) -> tuple[pa.Buffer | None, pa.Buffer | None, pa.Buffer | None, int, int]:
    """Validity, offsets, data, and how many rows come before the first one and from it on.

    An empty buffer may be None.
    """
    valid, offsets, data = array.buffers()
    return valid, offsets, data, array.offset, len(array)
