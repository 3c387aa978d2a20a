"""Columns to JSON objects, byte for byte as Spark's `to_json`: nulls written out, numbers in their shortest form.

A small C module does the work if it was built; otherwise Python does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from barnabas.streams.native import warn_not_built

#: The C side's numbers of the types: the width for integers, greater numbers for the others.
_KINDS = {pa.bool_(): 0, pa.int8(): 1, pa.int16(): 2, pa.int32(): 4, pa.int64(): 8, pa.string(): 16, pa.float64(): 24}
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_SPECIAL = re.compile(r'[\x00-\x1f"\\]')

Column = tuple[str, pa.Array]


def can_write(kind: pa.DataType) -> bool:
    """Whether columns of this type can be in an object."""
    return kind in _KINDS


def objects(columns: Sequence[Column]) -> pa.Array:
    """An object for each row, as large_binary.

    The columns (at least one) have types that `can_write` accepts, and equal lengths. Invalid UTF-8 in a text is
    replaced by U+FFFD.
    """
    return _writer()(columns)


@cache
def _writer() -> Callable[[Sequence[Column]], pa.Array]:
    """The C writer if it was built. If it was not, that is logged once."""
    try:
        from barnabas.streams.encode import _objects  # noqa: F401
    except ImportError:
        warn_not_built("JSON writer", "in Python")
        return in_python
    return in_c


def in_c(columns: Sequence[Column]) -> pa.Array:
    """See `objects`. Raises ImportError if it was not built."""
    from barnabas.streams.encode._objects import write

    rows = len(columns[0][1])
    if not rows:
        return pa.array([], pa.large_binary())
    given = []
    for number, (name, array) in enumerate(columns):
        valid, values, *data = array.buffers()
        given.append((_prefix(number, name), _KINDS[array.type], valid, values, *(data or [None]), array.offset))
    offsets, text = write(rows, tuple(given))
    return pa.Array.from_buffers(pa.large_binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def in_python(columns: Sequence[Column]) -> pa.Array:
    """See `objects`."""
    texts = [
        [_prefix(number, name) + _text(value) for value in _values(array)]
        for number, (name, array) in enumerate(columns)
    ]
    return pa.array([b"".join(row) + b"}" for row in zip(*texts, strict=True)], pa.large_binary())


def _prefix(number: int, name: str) -> bytes:
    return (b"," if number else b"{") + _quoted(name) + b":"


def _values(array: pa.Array) -> list[Any]:
    found: list[Any] = (array.cast(pa.binary()) if pa.types.is_string(array.type) else array).to_pylist()
    return found


def _text(value: Any) -> bytes:
    if value is None:
        return b"null"
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int):
        return b"%d" % value
    return _number(value).encode() if isinstance(value, float) else _quoted(value.decode("utf-8", "replace"))


def _quoted(text: str) -> bytes:
    return b'"' + _SPECIAL.sub(lambda c: _SHORT.get(c[0], f"\\u{ord(c[0]):04X}"), text).encode() + b'"'


def _number(number: float) -> str:
    """The number as Java's Double.toString writes it: plain from 0.001 to ten million, otherwise with an exponent."""
    if not math.isfinite(number):
        return '"NaN"' if number != number else '"Infinity"' if number > 0 else '"-Infinity"'
    sign = "-" if math.copysign(1, number) < 0 else ""
    if number == 0:
        return sign + "0.0"
    mantissa, _, shown = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    exponent = len(whole) - 1 + int(shown or 0)
    digits = (whole + fraction).lstrip("0")
    exponent -= len(whole + fraction) - len(digits)
    digits = digits.rstrip("0")
    if -3 <= exponent < 7:
        point = exponent + 1
        padded = ("0" * -point + digits if point <= 0 else digits).ljust(point, "0")
        point = max(point, 0)
        return f"{sign}{padded[:point] or '0'}.{padded[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
