"""Reads a table's current rows: what to SELECT, and how to turn the result into the values that the binary log has.

The server sends a text's bytes in the column's own character set (`character_set_results = NULL`), so it becomes text,
or stays bytes, exactly as in a row event. What the text protocol would round or paraphrase is selected in another form:
FLOAT as DOUBLE, ENUM and SET with their numbers, UUID and INET as bytes.
"""

from __future__ import annotations

import ipaddress
import struct
import uuid
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from barnabas.connect.binlog.charsets import decoder, literal
from barnabas.connect.binlog.columns import (
    Column,
    Layout,
    Value,
    bit_literal,
    choice_literal,
    chosen_of,
    distinct,
    is_exact,
    shortest_float,
    year_literal,
)
from barnabas.connect.binlog.events import EventError
from barnabas.connect.mysql.connection import RawRow, name_quoted

Make = Callable[[bytes], Value]
_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_TIMES = frozenset({"date", "time", "datetime", "timestamp"})
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BYTES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
GEOMETRIES = frozenset({"geometry", "point", "linestring", "polygon", "geometrycollection"})
GEOMETRIES |= {"multipoint", "multilinestring", "multipolygon", "geomcollection"}
SIZES = {"uuid": 16, "inet6": 16, "inet4": 4}
#: SET statements for a session that selects rows, and for one that inserts their literals again.
SESSION = (
    "SET SESSION time_zone = '+00:00', sql_mode = '', character_set_results = NULL",
    "SET SESSION net_write_timeout = 3600, wait_timeout = 28800",
)


class Known(NamedTuple):
    """What the server says of a column."""

    name: str
    kind: str  # DATA_TYPE
    full: str  # COLUMN_TYPE
    charset: str
    collation: str
    values: tuple[str, ...]  # of ENUM and SET, with `?` for a four-byte character
    key: int  # position in the primary key, from 1
    generated: bool = False
    octets: int = 0  # the most bytes that a value may have
    nullable: bool = True


class _Part(NamedTuple):
    select: str
    make: Make
    column: Column
    #: From a value to the literal with which the server finds the row again; for an ENUM or SET, from its number.
    place: Callable[[Any], str]
    #: Such a literal, made to compare as the column does, for use without the column.
    typed: Callable[[str], str]
    #: Makes the value that `place` takes.
    keyed: Make


class Selected:
    """One table. `key` is the number of columns in its primary key."""

    def __init__(self, database: str, table: str, columns: Sequence[Known]) -> None:
        self._parts = [_part(f"{database}.{table}", each) for each in columns]
        self.database, self.table = database, table
        order = sorted((each.key, number) for number, each in enumerate(columns) if each.key)
        self._key = [number for _, number in order]
        self._keys = [name_quoted(columns[number].name) for number in self._key]
        self._from = f"{name_quoted(database)}.{name_quoted(table)}"
        self.layout = Layout(database, table, tuple(part.column for part in self._parts), tuple(self._key))
        #: Differs if the rows of a table come in another order.
        told = [(columns[number].name, columns[number].full, columns[number].collation) for number in self._key]
        self.order = zlib.crc32(repr(told).encode())

    @property
    def has_key(self) -> bool:
        return bool(self._key)

    def sql(self, after: Sequence[str] | None, most: int) -> str:
        """SQL for the rows after a place; for all rows if there is no primary key."""
        sql = f"SELECT {', '.join(part.select for part in self._parts)} FROM {self._from}"
        if not self._key:
            return sql
        if after is not None:
            sql += f" WHERE {behind(self._keys, after)}"
        return f"{sql} ORDER BY {', '.join(self._keys)} LIMIT {most}"

    def row(self, raw: RawRow) -> list[Value]:
        return [None if data is None else part.make(data) for part, data in zip(self._parts, raw, strict=True)]

    def place(self, raw: RawRow) -> list[str]:
        """A row's place: its primary key, in key order."""
        parts = [self._parts[number] for number in self._key]
        return [part.place(part.keyed(raw[number] or b"")) for number, part in zip(self._key, parts, strict=True)]

    def place_in(self, layout: Layout, row: Sequence[Value]) -> list[str]:
        """Like `place`, for a row of an event. Columns outside the primary key may differ."""
        values: dict[str, Any] = {
            column.name: column.number(value) if column.kind in ("enum", "set") else value  # type: ignore[arg-type]
            for column, value in zip(layout.columns, row, strict=True)
            if value is not None
        }
        return [self._parts[number].place(values[self.layout.columns[number].name]) for number in self._key]

    def is_behind(self, row: Sequence[str], place: Sequence[str]) -> str:
        """A condition without a table: whether a row's place comes after another."""
        typed = [self._parts[number].typed for number in self._key]
        return behind(
            [make(text) for make, text in zip(typed, row, strict=True)],
            [make(text) for make, text in zip(typed, place, strict=True)],
        )


def behind(names: Sequence[str], place: Sequence[str]) -> str:
    """A condition that the primary key comes after a place, in a form that can use the index."""
    name, value = names[0], place[0]
    if len(names) == 1:
        return f"{name} > {value}"
    return f"{name} >= {value} AND ({name} > {value} OR {behind(names[1:], place[1:])})"


def _part(table: str, known: Known) -> _Part:
    name, kind = name_quoted(known.name), known.kind

    def part(kind: str, make: Make, literal: Callable[[Any], str], select: str = name) -> _Part:
        return _Part(select, make, Column(known.name, kind, _unread, literal), literal, str, make)

    if kind in _INTEGERS:
        return part("int", int, str)
    if kind == "decimal":
        return part("decimal", _decimal, str)
    if kind == "float":  # the server finds it again by its DOUBLE value, but perhaps not by the shortest FLOAT
        return part("float", _float, repr, f"CAST({name} AS DOUBLE)")._replace(place=_exactly)
    if kind == "double":
        return part("float", float, repr)
    if kind == "year":
        return part("year", int, year_literal)._replace(place=str)
    if kind in _TIMES:
        as_type = known.full if kind != "timestamp" else known.full.replace("timestamp", "datetime")
        return part(kind, _ascii, literal)._replace(typed=lambda text: f"CAST({text} AS {as_type})")
    if kind == "bit":
        bits = int(known.full.partition("(")[2].rstrip(")") or 1)
        return part("bit", _number, bit_literal(bits))._replace(place=str)
    if kind in ("enum", "set"):
        return _choice(part, name, known)
    if kind in _TEXTS:
        found = part("text", decoder(known.charset), literal)
        return found._replace(typed=lambda text: f"CONVERT({text} USING {known.charset}) COLLATE {known.collation}")
    if kind in _BYTES:
        return part("bytes", bytes, literal)
    if kind in GEOMETRIES:
        return part("geometry", bytes, literal)
    if kind in SIZES:
        found = part("bytes", bytes, literal, f"CAST({name} AS BINARY({SIZES[kind]}))")
        return found._replace(
            place=lambda raw: f"'{_address(kind, raw)}'", typed=lambda text: f"CAST({text} AS {kind})"
        )
    raise EventError(f"{table}: the column {known.name} has type {known.full}, which is not supported")


def _choice(part: Callable[..., _Part], name: str, known: Known) -> _Part:
    """Select the number and the text, separated by a comma: the server's own tables do not show every text exactly."""
    decode = decoder(known.charset)
    repeated = _repeated(known)
    mask = sum(1 << number - 1 for number in repeated if number)

    def number(raw: bytes) -> int:
        return int(raw.partition(b",")[0])

    def enum(raw: bytes) -> int | str:
        told, _, data = raw.partition(b",")
        text = decode(data)
        return text if isinstance(text, str) and int(told) not in repeated else int(told)

    def chosen(raw: bytes) -> int | str:
        told, _, data = raw.partition(b",")
        bits, text = int(told), decode(data) if data else ""
        return chosen_of(bits, text) if isinstance(text, str) and not bits & mask else bits

    select = f"CONCAT(CAST(CAST({name} AS UNSIGNED) AS BINARY), x'2c', CAST({name} AS BINARY))"
    make = enum if known.kind == "enum" else chosen
    return part(known.kind, make, choice_literal, select)._replace(place=str, keyed=number)


def _repeated(known: Known) -> frozenset[int]:
    """The numbers of members without a text of their own, and 0, which is no member."""
    exact = is_exact(known.collation)
    texts = [None if exact and "?" in text else text for text in known.values]
    left = distinct(texts, exact=exact)
    return frozenset({0, *(n for n, text in enumerate(texts, 1) if text is not None and left[n - 1] is None)})


def _unread(data: bytes, at: int) -> tuple[Value, int]:
    raise AssertionError("rows that were selected are not read from events")


def _ascii(raw: bytes) -> str:
    return raw.decode("ascii")


def _decimal(raw: bytes) -> str:
    """The number without the zeros of ZEROFILL."""
    text = raw.decode("ascii")
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, point, rest = digits.partition(".")
    return f"{sign}{whole.lstrip('0') or '0'}{point}{rest}"


def _float(raw: bytes) -> float:
    return shortest_float(struct.pack("<f", float(raw)))


def _exactly(value: float) -> str:
    """A FLOAT's exact value as a DOUBLE."""
    return repr(struct.unpack("<f", struct.pack("<f", value))[0])


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _address(kind: str, raw: bytes) -> str:
    return str(uuid.UUID(bytes=raw)) if kind == "uuid" else str(ipaddress.ip_address(raw))
