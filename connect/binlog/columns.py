"""Columns of row events: from the bytes of a row to values, and from values to SQL literals.

A value is an int, a float, a text, bytes, None for NULL, or `Undecoded`. Decimals, dates and times are texts, as the
server prints them; TIMESTAMP is in UTC. The value's literal inserts the identical value again.
Source: "Rows Event" of MariaDB's documentation, "Binary Log Event" of MySQL's, and tests against servers.
"""

from __future__ import annotations

import datetime
import struct
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from barnabas.connect.binlog.binary_json import text_of
from barnabas.connect.binlog.charsets import BINARY, Undecoded, decoder, literal
from barnabas.connect.binlog.events import EventError, Table, column_inflated
from barnabas.connect.binlog.json_diff import patched
from barnabas.connect.mysql.packets import ProtocolError, lenenc_int

Value = int | float | str | bytes | Undecoded | None
#: From the bytes at a position to a value, and the position after it.
Read = Callable[[bytes, int], tuple[Any, int]]
#: The texts of an ENUM or SET; None for a member whose text is not certain.
Texts = tuple[str | None, ...]

TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24, DATE, TIME, DATETIME, YEAR = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    10,
    11,
    12,
    13,
)
VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 15, 16, 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
VECTOR, JSON, NEWDECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 242, 245, 246, 247, 248, 252, 253, 254, 255
_INTEGERS = frozenset({TINY, SHORT, LONG, INT24, LONGLONG})
_CHOICES = frozenset({ENUM, SET})


class _Listed(NamedTuple):
    """Which columns have a place in a table map's lists of signedness and of collations (not ENUM and SET)."""

    numeric: frozenset[int]
    character: frozenset[int]


#: MySQL's YEAR has no signedness, and its GEOMETRY no collation. Its VECTOR has one, as it is kept as a BLOB.
_OF_MYSQL = _Listed(_INTEGERS | {FLOAT, DOUBLE, NEWDECIMAL}, frozenset({VARCHAR, STRING, VAR_STRING, BLOB, VECTOR}))
_OF_MARIADB = _Listed(
    _OF_MYSQL.numeric | {YEAR},
    frozenset({VARCHAR, STRING, VAR_STRING, BLOB, GEOMETRY, BLOB_COMPRESSED, VARCHAR_COMPRESSED}),
)
_META_SIZES = {
    **dict.fromkeys((FLOAT, DOUBLE, TIMESTAMP2, DATETIME2, TIME2, JSON, VECTOR, BLOB, GEOMETRY, BLOB_COMPRESSED), 1),
    **dict.fromkeys((VARCHAR, BIT, NEWDECIMAL, ENUM, SET, VAR_STRING, STRING, VARCHAR_COMPRESSED), 2),
}
#: In a partial update: the flag that JSON is given as changes, and the size of the length before these changes.
_PARTIAL_JSON, _PARTIAL_BYTES = 1, 4
_DECIMAL_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_EPOCH = datetime.datetime(1970, 1, 1)


class Told(NamedTuple):
    """What a source other than the table map says of a column: the server's own tables, as they are now.

    `logged` are the types, with their metadata, that a table map may have for such a column; None: any.
    """

    name: str
    unsigned: bool
    charset: str
    values: Texts = ()  # of ENUM and SET
    key: int = 0  # position in the primary key, from 1
    logged: frozenset[tuple[int, bytes]] | None = None
    nullable: bool = True


class Column(NamedTuple):
    """A column of a table as the binary log has it. `kind` is a name of the field: int, text, bytes, ...

    `values` are the members of an ENUM or SET.
    """

    name: str
    kind: str
    read: Read
    literal: Callable[[Any], str]
    values: Texts = ()

    def number(self, value: int | str) -> int:
        """The number of an ENUM's or SET's value."""
        if isinstance(value, int):
            return value
        if self.kind == "enum":
            return self.values.index(value) + 1
        return sum(1 << self.values.index(each) for each in value.split(",")) if value else 0


class Layout(NamedTuple):
    """How to read the rows of a table. `key`: the columns of the primary key; `json`: those of MySQL's type JSON."""

    database: str
    table: str
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    json: tuple[int, ...] = ()

    def rows(self, data: bytes, at: int, *, images: int) -> Iterator[tuple[list[Value], ...]]:
        """The rows from a position on, each as `images` images (before, after). Raises EventError."""
        reads = [column.read for column in self.columns]
        count = len(reads)
        size = (count + 7) // 8
        none = bytes(size)
        end = len(data)
        try:
            while at < end:
                found = []
                for _ in range(images):
                    nulls = data[at : at + size]
                    at += size
                    row: list[Value] = []
                    if nulls == none:
                        for read in reads:
                            value, at = read(data, at)
                            row.append(value)
                    else:
                        bits = int.from_bytes(nulls, "little")
                        for number, read in enumerate(reads):
                            if bits >> number & 1:
                                row.append(None)
                            else:
                                value, at = read(data, at)
                                row.append(value)
                    found.append(row)
                if at > end:
                    raise EventError("a row is cut off")
                yield tuple(found)
        except (struct.error, IndexError, ValueError) as error:
            raise EventError(f"a row of {self.database}.{self.table} cannot be read: {error}") from None

    def partial_rows(self, data: bytes, at: int) -> Iterator[tuple[list[Value], ...]]:
        """Like `rows`, for updates whose new JSON may be given as changes of the old one. Raises EventError."""
        try:
            while at < len(data):
                before, at = self._image(data, at, {})
                options, at = lenenc_int(data, at)
                partial: dict[int, Value] = {}
                if options & _PARTIAL_JSON:
                    size = (len(self.json) + 7) // 8
                    bits = int.from_bytes(data[at : at + size], "little")
                    at += size
                    partial = {column: before[column] for n, column in enumerate(self.json) if bits >> n & 1}
                after, at = self._image(data, at, partial)
                yield before, after
        except (struct.error, IndexError, ValueError, ProtocolError, RecursionError) as error:
            raise EventError(f"a row of {self.database}.{self.table} cannot be read: {error}") from None

    def _image(self, data: bytes, at: int, partial: dict[int, Value]) -> tuple[list[Value], int]:
        """A row, and the position after it. `partial`: the old values of the columns that may be given as changes."""
        size = (len(self.columns) + 7) // 8
        if at + size > len(data):
            raise IndexError("a row is cut off")
        nulls = int.from_bytes(data[at : at + size], "little")
        at += size
        row: list[Value] = []
        for number, column in enumerate(self.columns):
            value: Value = None
            if nulls >> number & 1:
                pass
            elif number in partial:
                changes, at = _counted(data, at, _PARTIAL_BYTES)
                before = partial[number]
                if not isinstance(before, str):
                    raise ValueError(f"{column.name} was NULL before it was changed in part")
                value = patched(before, changes, _decimal)
            else:
                value, at = column.read(data, at)
            row.append(value)
        if at > len(data):
            raise IndexError("a row is cut off")
        return row, at

    def literals(self, row: Sequence[Value]) -> list[str]:
        """The row as SQL literals."""
        return [
            "NULL" if value is None else column.literal(value) for column, value in zip(self.columns, row, strict=True)
        ]


def layout_of(
    table: Table,
    charsets: dict[int, str],
    told: list[Told] | None,
    *,
    mariadb: bool = True,
    exact: frozenset[int] = frozenset(),
) -> Layout:
    """The layout from a table map, completed by `told` where the map is silent. Raises EventError if it cannot be read.

    `charsets` are the collations by number; `exact` are those in which no two different texts are equal.
    """
    lists = _OF_MARIADB if mariadb else _OF_MYSQL
    _check_lists(table, lists)
    if told is not None:
        _compare(table, charsets, told, lists)
    columns = [
        _column(table, kind, meta, _Parts(table, charsets, exact, told, lists, number))
        for number, kind, meta in _metas(table)
    ]
    key = tuple(table.primary_key)
    if not key and told is not None:
        key = tuple(n for _, n in sorted((each.key, n) for n, each in enumerate(told) if each.key))
    json = tuple(number for number, kind, _ in _metas(table) if kind == JSON)
    return Layout(table.database, table.name, tuple(columns), key, json)


def _check_lists(table: Table, lists: _Listed) -> None:
    """Check each list's length: one entry too many or too few would shift all later columns. Raises EventError."""
    kinds = [kind for _, kind, _ in _metas(table)]

    def count(*of: int) -> int:
        return sum(kind in of for kind in kinds)

    told = [
        ("signedness", table.signedness, (count(*lists.numeric) + 7) // 8),
        ("collations", table.charsets, count(*lists.character)),
        ("names", table.names, len(kinds)),
        ("SETs", table.sets, count(SET)),
        ("ENUMs", table.enums, count(ENUM)),
        ("collations of ENUM and SET", table.enum_charsets, count(ENUM, SET)),
    ]
    for name, listed, wanted in told:
        if listed is not None and len(listed) != wanted:
            raise EventError(
                f"the table map of {table.database}.{table.name} lists {len(listed)} {name}, where its columns have "
                f"{wanted}"
            )


def _compare(table: Table, charsets: dict[int, str], told: list[Told], lists: _Listed) -> None:
    """Check that the table, by all that its map says, was then what it is now. Raises EventError."""
    name = f"{table.database}.{table.name}"
    if len(told) != len(table.types):
        raise EventError(f"{name} had {len(table.types)} columns, and has {len(told)} now{_ANEW}")
    for number, kind, meta in _metas(table):
        now = told[number]
        if now.logged is None:
            continue
        parts = _Parts(table, charsets, frozenset(), None, lists, number)
        was = bool(table.nullable[number // 8] >> number % 8 & 1)
        if (kind, meta) not in now.logged or was != now.nullable or parts.differs(kind, now):
            raise EventError(f"column {number + 1} of {name} was another one than {now.name} is now{_ANEW}")


_ANEW = (
    ", and the binary log does not say what its columns were: run SET GLOBAL binlog_row_metadata = 'FULL' on the "
    "server, and start again, with a new name (--name) and --snapshot initial"
)


def needs_telling(table: Table) -> bool:
    """Whether a table map lacks something that the reader needs."""
    return table.names is None


def whatever(table: Table) -> list[Told]:
    """Columns that are read only to find where the next one begins."""
    return [Told(f"@{number}", False, BINARY) for number in range(1, len(table.types) + 1)]


def _metas(table: Table) -> Iterator[tuple[int, int, bytes]]:
    """The number, type and metadata of each column, with CHAR, ENUM and SET distinguished."""
    at = 0
    for number, kind in enumerate(table.types):
        size = _META_SIZES.get(kind, 0)
        meta = table.metadata[at : at + size]
        at += size
        if len(meta) != size:
            raise EventError(f"the metadata of {table.database}.{table.name} is cut off")
        if kind == STRING:
            first, second = meta
            if first & 0x30 != 0x30:
                second |= ((first & 0x30) ^ 0x30) << 4
                first |= 0x30
            kind = first
            meta = second.to_bytes(2, "little")
        yield number, kind, meta


class _Parts:
    """What is known of one column in addition to its type."""

    def __init__(
        self,
        table: Table,
        charsets: dict[int, str],
        exact: frozenset[int],
        told: list[Told] | None,
        lists: _Listed,
        number: int,
    ) -> None:
        self._table, self._charsets, self._exact, self._lists, self._number = table, charsets, exact, lists, number
        self._told = None if told is None else told[number]
        self._kinds = [kind for _, kind, _ in _metas(table)]

    @property
    def name(self) -> str:
        if self._table.names is not None:
            return self._table.names[self._number]
        return self._told.name if self._told is not None else f"@{self._number + 1}"

    def _rank(self, kinds: frozenset[int]) -> int:
        """The column's index among the columns of these kinds."""
        return sum(kind in kinds for kind in self._kinds[: self._number])

    def differs(self, kind: int, now: Told) -> bool:
        """Whether the table map's signedness or character set differs from the current one."""
        if self._table.signedness is not None and kind in _OF_MYSQL.numeric and self.unsigned != now.unsigned:
            return True
        if kind not in self._lists.character or kind == GEOMETRY:
            return False
        number = self._collation(self._lists.character, self._table.charsets, self._table.default_charset)
        return number is not None and self._named(number) != now.charset

    @property
    def unsigned(self) -> bool:
        bits = self._table.signedness
        if bits is not None:
            rank = self._rank(self._lists.numeric)
            return bool(bits[rank // 8] & 0x80 >> rank % 8)
        if self._told is None:
            raise EventError(f"nothing says whether the column {self.name} has a sign")
        return self._told.unsigned

    def charset(self) -> str:
        number = self._collation(self._lists.character, self._table.charsets, self._table.default_charset)
        return self._told.charset if number is None and self._told is not None else self._named(number)

    def _collation(
        self, kinds: frozenset[int], listed: list[int] | None, default: tuple[int, dict[int, int]] | None
    ) -> int | None:
        rank = self._rank(kinds)
        if listed is not None:
            return listed[rank]
        return None if default is None else default[1].get(rank, default[0])

    def _named(self, collation: int | None) -> str:
        if collation is None:
            raise EventError(f"nothing says which character set the column {self.name} has")
        try:
            return self._charsets[collation]
        except KeyError:
            raise EventError(f"the server does not say what collation {collation} is") from None

    def values(self, kind: int) -> Texts:
        """The texts of an ENUM or SET; empty if they are not known."""
        listed = self._table.enums if kind == ENUM else self._table.sets
        if listed is None:
            if self._told is None:
                raise EventError(f"nothing says what members the column {self.name} has")
            return self._told.values
        number = self._collation(_CHOICES, self._table.enum_charsets, self._table.enum_default_charset)
        decode = decoder(self._named(number))
        texts = [decode(each) for each in listed[self._rank(frozenset({kind}))]]
        return distinct([text if isinstance(text, str) else None for text in texts], exact=number in self._exact)


def distinct(texts: Sequence[str | None], *, exact: bool) -> Texts:
    """The texts, with None for each that the collation may treat as equal to an earlier member.

    The server would take such a text for the earlier member.
    Such a member exists only if the table was made without strict mode. If the collation is `exact`, only an identical
    text counts as equal.
    """
    seen: set[str] = set()
    found: list[str | None] = []
    for text in texts:
        same = text if exact or text is None else _folded(text)
        found.append(None if same in seen else text)
        if same is not None:
            seen.add(same)
    return tuple(found)


def is_exact(collation: str) -> bool:
    """Whether texts are equal in this collation only if their bytes are equal."""
    return collation == BINARY or collation.endswith("_bin")


def _folded(text: str) -> str:
    """The text without what collations ignore. They treat all four-byte characters as equal, and the server's own
    tables show each of these as `?`.
    """
    parts = unicodedata.normalize("NFKD", text.rstrip(" "))
    kept = ["?" if ord(each) > 0xFFFF else each for each in parts if unicodedata.category(each)[0] not in "MC"]
    return "".join(kept).casefold()


def _column(table: Table, kind: int, meta: bytes, parts: _Parts) -> Column:
    name = parts.name
    if kind in _INTEGERS:
        return Column(name, "int", _integer(kind, unsigned=parts.unsigned), str)
    if kind == FLOAT:
        return Column(name, "float", _float, repr)
    if kind == DOUBLE:
        return Column(name, "float", _double, repr)
    if kind == NEWDECIMAL:
        return Column(name, "decimal", _decimal(meta[0], meta[1]), str)
    if kind in _TIMES:
        read = _TIMES[kind](meta[0] if meta else 0)
        return Column(name, _TIME_KINDS[kind], read, year_literal if kind == YEAR else literal)
    if kind in (VARCHAR, VAR_STRING, STRING):
        size = int.from_bytes(meta, "little")
        charset = parts.charset()
        fill = size if kind == STRING and charset == BINARY else 0
        return Column(name, _text_kind(charset), _string(size, charset, fill), literal)
    if kind == VARCHAR_COMPRESSED:
        charset = parts.charset()
        return Column(
            name, _text_kind(charset), _compressed(2 if int.from_bytes(meta, "little") > 255 else 1, charset), literal
        )
    if kind == BLOB:
        charset = parts.charset()
        return Column(name, _text_kind(charset), _blob(meta[0], charset), literal)
    if kind == BLOB_COMPRESSED:
        charset = parts.charset()
        return Column(name, _text_kind(charset), _compressed(meta[0], charset), literal)
    if kind == JSON:
        return Column(name, "text", _json(meta[0]), literal)
    if kind == GEOMETRY:
        return Column(name, "geometry", _blob(meta[0], BINARY), literal)
    if kind == BIT:
        bits = meta[0] + meta[1] * 8
        return Column(name, "bit", _bit((bits + 7) // 8), bit_literal(bits))
    if kind == ENUM:
        values = parts.values(ENUM)
        return Column(name, "enum", _enum(meta[0], values), choice_literal, values)
    if kind == SET:
        values = parts.values(SET)
        return Column(name, "set", _set(meta[0], values), choice_literal, values)
    raise EventError(f"{table.database}.{table.name}: the column {name} has type {kind}, which is not supported")


def _text_kind(charset: str) -> str:
    return "bytes" if charset == BINARY else "text"


def _integer(kind: int, *, unsigned: bool) -> Read:
    """A reader for integers of this type."""
    if kind == INT24:
        return _medium_unsigned if unsigned else _medium
    form = {TINY: "b", SHORT: "h", LONG: "i", LONGLONG: "q"}[kind]
    code = struct.Struct("<" + (form.upper() if unsigned else form))
    unpack, size = code.unpack_from, code.size

    def read(data: bytes, at: int) -> tuple[int, int]:
        return unpack(data, at)[0], at + size

    return read


def _medium(data: bytes, at: int) -> tuple[int, int]:
    return int.from_bytes(data[at : at + 3], "little", signed=True), at + 3


def _medium_unsigned(data: bytes, at: int) -> tuple[int, int]:
    return int.from_bytes(data[at : at + 3], "little"), at + 3


#: The server rejects a greater number as out of range, even one that would round to this.
GREATEST_FLOAT = float((1 << 24) - 1 << 104)
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


def _float(data: bytes, at: int) -> tuple[float, int]:
    return shortest_float(data[at : at + 4]), at + 4


def shortest_float(raw: bytes) -> float:
    """The shortest number that reads back as this 32-bit float."""
    (value,) = _FLOAT.unpack(raw)
    for digits in (6, 7, 8, 9):
        short = float(f"{value:.{digits}g}")
        try:
            if _FLOAT.pack(short) == raw:
                return short if abs(short) <= GREATEST_FLOAT else value
        except OverflowError:  # rounded up beyond the greatest float
            continue
    assert isinstance(value, float)
    return value


def _double(data: bytes, at: int) -> tuple[float, int]:
    return _DOUBLE.unpack_from(data, at)[0], at + 8


def _decimal(precision: int, scale: int) -> Read:
    whole = precision - scale
    sizes = [_DECIMAL_BYTES[whole % 9], *[4] * (whole // 9)]
    digits = [whole % 9, *[9] * (whole // 9)]
    parts = [(size, count) for size, count in zip(sizes, digits, strict=True) if count]
    tail = [(4, 9)] * (scale // 9)
    if scale % 9:
        tail.append((_DECIMAL_BYTES[scale % 9], scale % 9))
    total = sum(size for size, _ in parts + tail)

    def read(data: bytes, at: int) -> tuple[str, int]:
        raw = data[at : at + total]
        if len(raw) != total:
            raise IndexError("a number is cut off")
        negative = not raw[0] & 0x80
        number = int.from_bytes(raw, "big")
        if negative:
            number ^= (1 << 8 * total) - 1
        raw = (number ^ 0x80 << 8 * (total - 1)).to_bytes(total, "big")
        position = 0
        text = ""
        for size, count in parts:
            text += f"{int.from_bytes(raw[position : position + size], 'big'):0{count}d}"
            position += size
        text = text.lstrip("0") or "0"
        if tail:
            text += "."
            for size, count in tail:
                text += f"{int.from_bytes(raw[position : position + size], 'big'):0{count}d}"
                position += size
        return f"-{text}" if negative else text, at + total

    return read


# --- dates and times --------------------------------------------------------------------------------------------------


def _fraction(digits: int) -> tuple[int, int]:
    """How many bytes the fraction of a second takes, and how many digits these bytes hold."""
    size = (digits + 1) // 2
    return size, 2 * size


def _with_fraction(text: str, raw: int, digits: int, kept: int) -> str:
    return f"{text}.{f'{raw:0{kept}d}'[:digits]}" if digits else text


def _date(_: int) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        raw = int.from_bytes(data[at : at + 3], "little")
        return f"{raw >> 9:04d}-{raw >> 5 & 15:02d}-{raw & 31:02d}", at + 3

    return read


def _year(_: int) -> Read:
    def read(data: bytes, at: int) -> tuple[int, int]:
        return data[at] + 1900 if data[at] else 0, at + 1

    return read


def year_literal(value: int) -> str:
    return str(value) if value else "'0000'"


def _datetime2(digits: int) -> Read:
    size, kept = _fraction(digits)
    end = 5 + size

    def read(data: bytes, at: int) -> tuple[str, int]:
        raw = int.from_bytes(data[at : at + 5], "big") - 0x8000000000
        months, days = raw >> 22, raw >> 17 & 31
        text = (
            f"{months // 13:04d}-{months % 13:02d}-{days:02d} {raw >> 12 & 31:02d}:{raw >> 6 & 63:02d}:{raw & 63:02d}"
        )
        fraction = int.from_bytes(data[at + 5 : at + end], "big")
        return _with_fraction(text, fraction, digits, kept), at + end

    return read


def _timestamp2(digits: int) -> Read:
    size, kept = _fraction(digits)
    end = 4 + size

    def read(data: bytes, at: int) -> tuple[str, int]:
        seconds = int.from_bytes(data[at : at + 4], "big")
        fraction = int.from_bytes(data[at + 4 : at + end], "big")
        return _with_fraction(_utc(seconds, fraction), fraction, digits, kept), at + end

    return read


def _utc(seconds: int, fraction: int = 0) -> str:
    if not seconds and not fraction:
        return "0000-00-00 00:00:00"
    return str(_EPOCH + datetime.timedelta(seconds=seconds))


def _time2(digits: int) -> Read:
    size, kept = _fraction(digits)
    end = 3 + size
    bits = 8 * size

    def read(data: bytes, at: int) -> tuple[str, int]:
        raw = int.from_bytes(data[at : at + end], "big") - (0x800000 << bits)
        sign = "-" if raw < 0 else ""
        raw = abs(raw)
        whole = raw >> bits
        text = f"{sign}{whole >> 12 & 0x3FF:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}"
        return _with_fraction(text, raw & (1 << bits) - 1, digits, kept), at + end

    return read


#: Types from before MySQL 5.6. MariaDB 5.3 to 10.0 stored fractions in them, and no table map says how many digits.
_OLD_FRACTION = (
    "a time in the format of MariaDB 5.3 with a fraction of a second, which the binary log does not describe: ALTER "
    "TABLE ... FORCE renews the table"
)


def _old_timestamp(_: int) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        return _utc(int.from_bytes(data[at : at + 4], "little")), at + 4

    return read


def _old_datetime(_: int) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        text = f"{int.from_bytes(data[at : at + 8], 'little'):014d}"
        month, day, hour, minute, second = (text[place : place + 2] for place in range(4, 14, 2))
        if len(text) > 14 or month > "12" or day > "31" or hour > "23" or minute > "59" or second > "59":
            raise ValueError(_OLD_FRACTION)
        return f"{text[:4]}-{month}-{day} {hour}:{minute}:{second}", at + 8

    return read


def _old_time(_: int) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        raw = int.from_bytes(data[at : at + 3], "little", signed=True)
        text = f"{abs(raw):06d}"
        if text[-4:-2] > "59" or text[-2:] > "59":
            raise ValueError(_OLD_FRACTION)
        return f"{'-' if raw < 0 else ''}{text[:-4]}:{text[-4:-2]}:{text[-2:]}", at + 3

    return read


_TIMES: dict[int, Callable[[int], Read]] = {
    DATE: _date,
    YEAR: _year,
    DATETIME2: _datetime2,
    TIMESTAMP2: _timestamp2,
    TIME2: _time2,
    TIMESTAMP: _old_timestamp,
    DATETIME: _old_datetime,
    TIME: _old_time,
}
_TIME_KINDS = {
    DATE: "date",
    YEAR: "year",
    DATETIME2: "datetime",
    DATETIME: "datetime",
    TIMESTAMP2: "timestamp",
    TIMESTAMP: "timestamp",
    TIME2: "time",
    TIME: "time",
}

# --- texts and bytes --------------------------------------------------------------------------------------------------


def _string(most: int, charset: str, fill: int) -> Read:
    """CHAR, VARCHAR, BINARY, VARBINARY. A BINARY has lost its trailing zeros; they are added again."""
    decode = decoder(charset)
    wide = most > 255

    def read(data: bytes, at: int) -> tuple[str | bytes | Undecoded, int]:
        if wide:
            start = at + 2
            end = start + (data[at] | data[at + 1] << 8)
        else:
            start = at + 1
            end = start + data[at]
        raw = data[start:end]
        if end > len(data):
            raise IndexError("a text is cut off")
        return decode(raw.ljust(fill, b"\0") if fill else raw), end

    return read


def _blob(width: int, charset: str) -> Read:
    decode = decoder(charset)

    def read(data: bytes, at: int) -> tuple[str | bytes | Undecoded, int]:
        raw, at = _counted(data, at, width)
        return decode(raw), at

    return read


def _compressed(width: int, charset: str) -> Read:
    decode = decoder(charset)

    def read(data: bytes, at: int) -> tuple[str | bytes | Undecoded, int]:
        raw, at = _counted(data, at, width)
        return decode(column_inflated(raw)), at

    return read


def _counted(data: bytes, at: int, width: int) -> tuple[bytes, int]:
    start = at + width
    end = start + int.from_bytes(data[at:start], "little")
    if end > len(data):
        raise IndexError("a value is cut off")
    return data[start:end], end


def _json(width: int) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        raw, at = _counted(data, at, width)
        return text_of(raw, _decimal), at

    return read


def _bit(size: int) -> Read:
    def read(data: bytes, at: int) -> tuple[int, int]:
        return int.from_bytes(data[at : at + size], "big"), at + size

    return read


def bit_literal(bits: int) -> Callable[[int], str]:
    return lambda value: f"b'{value:0{bits}b}'"


def _enum(size: int, values: Texts) -> Read:
    def read(data: bytes, at: int) -> tuple[int | str, int]:
        number = int.from_bytes(data[at : at + size], "little")
        text = values[number - 1] if 0 < number <= len(values) else None
        return number if text is None else text, at + size

    return read


def _set(size: int, values: Texts) -> Read:
    def read(data: bytes, at: int) -> tuple[int | str, int]:
        return members(int.from_bytes(data[at : at + size], "little"), values), at + size

    return read


def members(bits: int, values: Texts) -> int | str:
    """The chosen members of a SET; the number if a text is not known."""
    chosen = [value for number, value in enumerate(values) if bits >> number & 1]
    texts = [value for value in chosen if value is not None]
    if bits >> len(values) or len(texts) != len(chosen):
        return bits
    return chosen_of(bits, ",".join(texts))


def chosen_of(bits: int, text: str) -> int | str:
    """The text of a SET's chosen members. If the empty member is chosen, the number, as the text may not show it."""
    parts = text.split(",") if text else []
    return text if "" not in parts and len(parts) == bits.bit_count() else bits


def choice_literal(value: int | str) -> str:
    return str(value) if type(value) is int else literal(str(value))
