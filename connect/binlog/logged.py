"""How a current column would be logged, to compare with a table map that has no names.

Without full metadata, a table map has the columns' types, their lengths, and whether they may be NULL. If these differ
from the current table, the table was different when the rows were logged.
"""

from __future__ import annotations

import re

from barnabas.connect.binlog import columns as types
from barnabas.connect.binlog.charsets import is_certain
from barnabas.connect.binlog.columns import Told, distinct, is_exact
from barnabas.connect.binlog.selected import GEOMETRIES, SIZES, Known

#: A type in a table map, and its metadata.
Logged = tuple[int, bytes]
_PLAIN: dict[str, Logged] = {
    "tinyint": (types.TINY, b""),
    "smallint": (types.SHORT, b""),
    "mediumint": (types.INT24, b""),
    "int": (types.LONG, b""),
    "bigint": (types.LONGLONG, b""),
    "float": (types.FLOAT, b"\x04"),
    "double": (types.DOUBLE, b"\x08"),
    "date": (types.DATE, b""),
    "year": (types.YEAR, b""),
    "json": (types.JSON, b"\x04"),
}
#: Types as they are now, and as they were before MySQL 5.6 and MariaDB 10.1, which had no fractions.
_TIMES = {
    "time": (types.TIME2, types.TIME),
    "datetime": (types.DATETIME2, types.DATETIME),
    "timestamp": (types.TIMESTAMP2, types.TIMESTAMP),
}
_BLOBS = {"tiny": 1, "": 2, "medium": 3, "long": 4}
_BLOB = re.compile("(tiny||medium|long)(?:text|blob)")
#: Character sets with characters that the server's own tables cannot hold.
_WIDE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})


def told_of(known: Known) -> Told:
    """What the reader of events learns about a column."""
    full = known.full.lower()
    texts = distinct(known.values, exact=is_exact(known.collation))
    return Told(
        known.name,
        "unsigned" in full or "zerofill" in full,
        known.charset,
        tuple(text if text is not None and is_known(text, known.charset) else None for text in texts),
        known.key,
        logged_as(known),
        known.nullable,
    )


def is_known(text: str, charset: str) -> bool:
    """Whether the server's own tables show this ENUM or SET member exactly, and events give it as text."""
    return is_certain(charset, text) and not ("?" in text and charset in _WIDE)


def logged_as(known: Known) -> frozenset[Logged]:
    """The types and metadata with which a column may be logged; empty if its type is not supported."""
    kind, size = known.kind, known.octets
    if kind in _PLAIN:
        return frozenset({_PLAIN[kind]})
    if kind in _TIMES:
        now, before = _TIMES[kind]
        (fraction,) = _numbers(known) or [0]
        return frozenset({(now, bytes([fraction])), *([] if fraction else [(before, b"")])})
    if kind == "decimal":
        return frozenset({(types.NEWDECIMAL, bytes(_numbers(known)))})
    if kind == "bit":
        (bits,) = _numbers(known)
        return frozenset({(types.BIT, bytes([bits % 8, bits // 8]))})
    if kind in ("enum", "set"):
        code, width = (types.ENUM, _enum_bytes(known)) if kind == "enum" else (types.SET, _set_bytes(known))
        return frozenset({(code, _two(width))})
    if kind in ("char", "binary"):
        return frozenset({(types.STRING, _two(size))})
    if kind in SIZES:
        return frozenset({(types.STRING, _two(SIZES[kind]))})
    is_compressed = "compressed*/" in known.full.lower().replace(" ", "")
    if kind in ("varchar", "varbinary"):
        if is_compressed:  # with a byte that says how it is compressed
            return frozenset({(types.VARCHAR_COMPRESSED, _two(size + 1))})
        return frozenset({(types.VARCHAR, _two(size)), (types.VAR_STRING, _two(size))})
    if kind in GEOMETRIES:
        return frozenset({(types.GEOMETRY, b"\x04")})
    if (blob := _BLOB.fullmatch(kind)) is not None:
        return frozenset({(types.BLOB_COMPRESSED if is_compressed else types.BLOB, bytes([_BLOBS[blob[1]]]))})
    return frozenset()


def _numbers(known: Known) -> list[int]:
    """The numbers in the parentheses of a type."""
    return [int(number) for number in re.findall(r"\d+", known.full.partition("(")[2].partition(")")[0])]


def _two(number: int) -> bytes:
    return (number & 0xFFFF).to_bytes(2, "little")


def _enum_bytes(known: Known) -> int:
    return 1 if len(known.values) < 256 else 2


def _set_bytes(known: Known) -> int:
    width = (len(known.values) + 7) // 8
    return width if width <= 4 else 8
