"""From MySQL's binary JSON, as row events have it in JSON columns, to the text that the server prints.

A value is a type byte followed by its data. An object or array begins with its element count and its size, followed by
entries of a fixed width. Small values are stored in the entry itself; for the others the entry has an offset. Offsets
may be wrong, share a target or form a circle: the work is bounded by the size of the value.
Source: "The JSON Data Type" of MySQL's documentation, and the description in its `json_binary.h`.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from typing import NamedTuple

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_STRING, _OPAQUE = 0x0C, 0x0F
_LITERALS = {0: "null", 1: "true", 2: "false"}
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_DOUBLE = 0x0B
#: Column types that an opaque value may have.
_TIMESTAMP, _DATE, _TIME, _DATETIME, _DECIMAL = 7, 10, 11, 12, 246
#: MySQL's limit.
_MAX_DEPTH = 100

#: From precision and scale to a function that reads the packed DECIMAL at a position.
Decimals = Callable[[int, int], Callable[[bytes, int], tuple[str, int]]]


def text_of(data: bytes, decimals: Decimals) -> str:
    """The text of a value. Raises ValueError if the bytes are not valid."""
    if not data:
        return "null"  # left by an UPDATE IGNORE of an invalid value
    reader = _Reader(data, decimals)
    try:
        return reader.value(data[0], 1, 0)
    except (IndexError, struct.error) as error:
        raise ValueError(f"a JSON value cannot be read: {error}") from None


class _Width(NamedTuple):
    """How wide the numbers in an object or array are."""

    size: int
    form: str
    inlined: frozenset[int]  # the types whose values stand in the entry


_SMALL = _Width(2, "<H", frozenset({_LITERAL, 5, 6}))
_LARGE = _Width(4, "<I", frozenset({_LITERAL, 5, 6, 7, 8}))


class _Reader:
    def __init__(self, data: bytes, decimals: Decimals) -> None:
        self._data, self._decimals = data, decimals
        self._left = len(data)  # with more elements than bytes, some would be read twice

    def value(self, kind: int, at: int, depth: int) -> str:
        """The value of this type whose data begin at a position."""
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            raise ValueError("a JSON value has more elements than bytes, or is nested too deeply")
        data = self._data
        if kind in (_SMALL_OBJECT, _LARGE_OBJECT):
            return self._object(at, _LARGE if kind == _LARGE_OBJECT else _SMALL, depth)
        if kind in (_SMALL_ARRAY, _LARGE_ARRAY):
            return self._array(at, _LARGE if kind == _LARGE_ARRAY else _SMALL, depth)
        if kind == _LITERAL:
            if data[at] not in _LITERALS:
                raise ValueError(f"a JSON literal is {data[at]}")
            return _LITERALS[data[at]]
        if kind in _NUMBERS:
            return str(struct.unpack_from(_NUMBERS[kind], data, at)[0])
        if kind == _DOUBLE:
            return _double(struct.unpack_from("<d", data, at)[0])
        if kind == _STRING:
            return _quoted(self._counted(at))
        if kind == _OPAQUE:
            return self._opaque(data[at], self._counted(at + 1))
        raise ValueError(f"a JSON value has the type {kind}")

    def _counted(self, at: int) -> bytes:
        """Bytes after their length, of which each length byte holds 7 bits."""
        size = 0
        for shift in range(0, 35, 7):
            byte = self._data[at]
            at += 1
            size |= (byte & 0x7F) << shift
            if not byte & 0x80:
                break
        else:
            raise ValueError("a length in a JSON value has no end")
        if at + size > len(self._data):
            raise ValueError("a text in a JSON value is cut off")
        self._left -= size  # a byte belongs to one text only
        if self._left < 0:
            raise ValueError("a JSON value has more texts than bytes")
        return self._data[at : at + size]

    def _head(self, begin: int, width: _Width, entry: int) -> int:
        """The number of elements. Their entries are checked to fit."""
        count, size = (struct.unpack_from(width.form, self._data, begin + n * width.size)[0] for n in (0, 1))
        if begin + size > len(self._data) or 2 * width.size + count * entry > size:
            raise ValueError("a JSON object or array is cut off")
        return int(count)

    def _element(self, entry: int, begin: int, width: _Width, depth: int) -> str:
        kind = self._data[entry]
        if kind in width.inlined:
            return self.value(kind, entry + 1, depth + 1)
        offset = struct.unpack_from(width.form, self._data, entry + 1)[0]
        return self.value(kind, begin + offset, depth + 1)

    def _array(self, begin: int, width: _Width, depth: int) -> str:
        entry = 1 + width.size
        count = self._head(begin, width, entry)
        first = begin + 2 * width.size
        return "[" + ", ".join(self._element(first + n * entry, begin, width, depth) for n in range(count)) + "]"

    def _object(self, begin: int, width: _Width, depth: int) -> str:
        key_entry, entry = width.size + 2, 1 + width.size
        count = self._head(begin, width, key_entry + entry)
        keys = begin + 2 * width.size
        first = keys + count * key_entry
        parts = []
        for number in range(count):
            at = keys + number * key_entry
            start = begin + struct.unpack_from(width.form, self._data, at)[0]
            size = struct.unpack_from("<H", self._data, at + width.size)[0]
            key = self._data[start : start + size]
            self._left -= size
            if len(key) != size or self._left < 0:
                raise ValueError("a key in a JSON value is cut off")
            parts.append(f"{_quoted(key)}: {self._element(first + number * entry, begin, width, depth)}")
        return "{" + ", ".join(parts) + "}"

    def _opaque(self, kind: int, data: bytes) -> str:
        """A value of another column type: a number, a time as text, or bytes in base64."""
        if kind == _DECIMAL:
            precision, scale = data[0], data[1]
            if not 1 <= precision <= 65 or scale > min(precision, 30):
                raise ValueError(f"a JSON value has a DECIMAL({precision},{scale})")
            return self._decimals(precision, scale)(data, 2)[0]
        if kind in (_DATE, _DATETIME, _TIMESTAMP, _TIME):
            return f'"{_time(kind, struct.unpack("<q", data)[0])}"'
        return f'"base64:type{kind}:{base64.b64encode(data).decode()}"'


def _quoted(data: bytes) -> str:
    try:
        return json.dumps(data.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        raise ValueError("a text in a JSON value is not UTF-8") from None


def _double(number: float) -> str:
    """The shortest digits that read back as the same number. A whole number keeps its point, so it stays a DOUBLE."""
    if not math.isfinite(number):
        raise ValueError("a JSON value has a number that is none")
    return repr(number).replace("e+", "e")


def _time(kind: int, packed: int) -> str:
    """A time in the server's packed form: 24 bits of microseconds below the fields of the time."""
    sign = "-" if packed < 0 else ""
    packed = abs(packed)
    micro, whole = packed & 0xFFFFFF, packed >> 24
    clock = f"{whole >> 12 & 0x1F:02d}:{whole >> 6 & 0x3F:02d}:{whole & 0x3F:02d}.{micro:06d}"
    if kind == _TIME:
        return f"{sign}{whole >> 12 & 0x3FF:02d}{clock[2:]}"
    months = whole >> 22
    date = f"{months // 13:04d}-{months % 13:02d}-{whole >> 17 & 0x1F:02d}"
    return date if kind == _DATE else f"{date} {clock}"
