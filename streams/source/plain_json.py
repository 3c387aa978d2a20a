"""The C reader of plain JSON values: flat columns. Values that are not plain are left to other readers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa

from barnabas.streams.native import warn_not_built

#: The C side's numbers of the types: the width for integers, greater numbers for the others.
_KINDS = {
    pa.bool_(): 0,
    pa.int8(): 1,
    pa.int16(): 2,
    pa.int32(): 4,
    pa.int64(): 8,
    pa.string(): 16,
    pa.float32(): 20,
    pa.float64(): 24,
}


def parse_plain(values: pa.Array, schema: pa.Schema) -> tuple[pa.Table, list[int]] | None:
    """A row for each of the binary `values`, and the indexes of those left to other parsers, whose rows are null.

    None if the schema has columns of other types, or the reader was not built.
    """
    parse = _parser()
    if parse is None or not all(field.type in _KINDS for field in schema):
        return None
    valid, offsets, data = values.buffers()
    names = tuple(field.name.encode() for field in schema)
    kinds = tuple(_KINDS[field.type] for field in schema)
    left, *blocks = parse(offsets, data or b"", valid, values.offset, len(values), names, kinds)
    buffers = iter([pa.py_buffer(block) for block in blocks])
    arrays = [
        pa.Array.from_buffers(field.type, len(values), [next(buffers) for _ in range(field.type.num_buffers)])
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema), left


@cache
def _parser() -> Callable[..., tuple[Any, ...]] | None:
    """The C parser if it was built. If it was not, that is logged once."""
    try:
        from barnabas.streams.source._json import parse
    except ImportError:
        warn_not_built("JSON reader", "of Arrow")
        return None
    return parse
