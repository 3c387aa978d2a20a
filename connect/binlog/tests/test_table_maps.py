"""Table maps made like a server's: each column's place in their lists, and the resulting values.

MariaDB's lists differ from MySQL's. MySQL's are made here from its sources, as the tests have no such server.
"""

from __future__ import annotations

import itertools
import string
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.connect.binlog.columns import Told, layout_of
from barnabas.connect.binlog.events import GTID, TABLE_MAP, WRITE, EventError, Table, table_of
from barnabas.connect.binlog.logged import logged_as
from barnabas.connect.binlog.reader import Begin, Change, Place, Reader, TableUnknownError
from barnabas.connect.binlog.selected import Known

#: Collations of a server, and the bytes of `é` in each.
COLLATIONS = {63: "binary", 45: "utf8mb4", 8: "latin1", 35: "ucs2", 7: "koi8r"}
BYTES = {63: b"\xe9", 45: "é".encode(), 8: b"\xe9", 35: b"\x00\xe9", 7: b"\xbf"}
TEXTS = {63: b"\xe9", 45: "é", 8: "é", 35: "é", 7: "©"}


class Kind(NamedTuple):
    """A column type. `row` are the bytes of a value, with `{}` for a text after its length."""

    code: int
    meta: bytes
    row: bytes = b""
    value: object = None
    unsigned: object = None  # the value if it is unsigned; then the column is in the list of signedness
    width: int = 0  # for a text, the bytes of its length; the column is then in the list of collations
    members: int = 0  # for ENUM and SET, the list that has them


NUMBERS = [
    Kind(1, b"", b"\xff", -1, 255),
    Kind(2, b"", b"\xff" * 2, -1, 2**16 - 1),
    Kind(9, b"", b"\xff" * 3, -1, 2**24 - 1),
    Kind(3, b"", b"\xff" * 4, -1, 2**32 - 1),
    Kind(8, b"", b"\xff" * 8, -1, 2**64 - 1),
    Kind(4, b"\x04", b"\x00\x00\xc0\x3f", 1.5, 1.5),
    Kind(5, b"\x08", b"\x00\x00\x00\x00\x00\x00\xf8\x3f", 1.5, 1.5),
    Kind(246, b"\x04\x02", b"\x8c\x22", "12.34", "12.34"),
]
TEXTUAL = [
    Kind(15, b"\x14\x00", width=1),
    Kind(15, b"\x2c\x01", width=2),
    Kind(253, b"\x14\x00", width=1),
    Kind(254, b"\xfe\x01", width=1),
    Kind(252, b"\x01", width=1),
    Kind(252, b"\x04", width=4),
]
CHOICES = [Kind(254, b"\xf7\x01", b"\x01", members=6), Kind(254, b"\xf8\x01", b"\x01", members=5)]
TIMES = [
    Kind(10, b"", (2024 << 9 | 2 << 5 | 29).to_bytes(3, "little"), "2024-02-29"),
    Kind(19, b"\x00", (0x800000 + (1 << 12)).to_bytes(3, "big"), "01:00:00"),
    Kind(17, b"\x00", bytes(4), "0000-00-00 00:00:00"),
    Kind(18, b"\x06", (0x8000000000).to_bytes(5, "big") + bytes(3), "0000-00-00 00:00:00.000000"),
    Kind(16, b"\x00\x01", b"\x05", 5),
]
BOTH = [*NUMBERS, *TEXTUAL, *CHOICES, *TIMES]
OF_MARIADB = [
    *BOTH,
    Kind(13, b"", b"\x7b", 2023, 2023),
    Kind(255, b"\x04", width=-4),
    Kind(140, b"\x02", width=-2),
    Kind(141, b"\x15\x00", width=-1),
]
OF_MYSQL = [*BOTH, Kind(13, b"", b"\x7b", 2023), Kind(255, b"\x01", b"\x01\xe9", b"\xe9"), Kind(245, b"\x04")]


class Made(NamedTuple):
    """A column: its type, whether it is unsigned, the collation of its texts, and whether it may be NULL."""

    kind: Kind
    unsigned: bool
    collation: int
    nullable: bool = True

    @property
    def bytes(self) -> bytes:
        """The bytes of its value in a row."""
        kind, text = self.kind, BYTES[self.collation]
        if kind.code == 245:
            return b"\x02\x00\x00\x00\x04\x01"  # true
        if kind.code in (140, 141):
            text = b"\x00" + text  # stored unchanged
        elif kind.code == 255 and kind.width:
            text = b"\xe9"
        return len(text).to_bytes(abs(kind.width), "little") + text if kind.width else kind.row

    @property
    def value(self) -> object:
        kind = self.kind
        if kind.code == 245:
            return "true"
        if kind.code == 255:
            return b"\xe9"
        if kind.members:
            return 1 if self.collation == 63 else TEXTS[self.collation]
        if kind.width:
            return TEXTS[self.collation]
        return kind.unsigned if self.unsigned and kind.unsigned is not None else kind.value


def lenenc(number: int) -> bytes:
    return bytes([number]) if number < 251 else b"\xfc" + number.to_bytes(2, "little")


def counted(data: bytes) -> bytes:
    return lenenc(len(data)) + data


def bits(flags: Sequence[bool]) -> bytes:
    """Beginning with the highest bit of the first byte."""
    text = "".join("1" if flag else "0" for flag in flags)
    return bytes(int(text[at : at + 8].ljust(8, "0"), 2) for at in range(0, len(text), 8))


def collations(numbers: Sequence[int], *, listed: bool, kinds: tuple[int, int]) -> bytes:
    """As a default and its exceptions, or as a list."""
    if not numbers:
        return b""
    if listed:
        return bytes([kinds[1]]) + counted(b"".join(map(lenenc, numbers)))
    default = numbers[-1]
    pairs = [lenenc(at) + lenenc(number) for at, number in enumerate(numbers) if number != default]
    return bytes([kinds[0]]) + counted(lenenc(default) + b"".join(pairs))


def table_map(columns: Sequence[Made], *, listed: bool = True, metadata: str = "FULL") -> bytes:
    """The body of a TABLE_MAP with this `binlog_row_metadata`."""
    names = [f"{string.ascii_lowercase[number % 26]}{number}" for number in range(len(columns))]
    nullable = sum(1 << number for number, each in enumerate(columns) if each.nullable)
    body = bytes(8) + b"\x01d\x00\x01t\x00" + counted(bytes(each.kind.code for each in columns))
    body += counted(b"".join(each.kind.meta for each in columns))
    body += nullable.to_bytes((len(columns) + 7) // 8, "little")
    if metadata == "NO_LOG":
        return body
    numeric = [each.unsigned for each in columns if each.kind.unsigned is not None]
    if numeric:
        body += b"\x01" + counted(bits(numeric))
    texts = [63 if each.kind.code == 255 else each.collation for each in columns if each.kind.width]
    body += collations(texts, listed=listed, kinds=(2, 3))
    if metadata == "MINIMAL":
        return body
    body += b"\x04" + counted(b"".join(counted(name.encode()) for name in names))
    for members in (5, 6):
        mine = [counted(BYTES[each.collation]) for each in columns if each.kind.members == members]
        if mine:
            body += bytes([members]) + counted(b"".join(b"\x01" + each for each in mine))
    choices = [each.collation for each in columns if each.kind.members]
    body += collations(choices, listed=listed, kinds=(10, 11))
    return body + b"\x08" + counted(b"\x00")


def tables(kinds: list[Kind]) -> st.SearchStrategy[list[Made]]:
    collation = st.sampled_from(sorted(COLLATIONS))
    column = st.builds(Made, st.sampled_from(kinds), st.booleans(), collation, st.booleans())
    return st.lists(column, min_size=1, max_size=300)


def values(columns: Sequence[Made], table: Table, *, mariadb: bool) -> list[object]:
    layout = layout_of(table, COLLATIONS, None, mariadb=mariadb)
    row = bytes((len(columns) + 7) // 8) + b"".join(each.bytes for each in columns)
    ((found,),) = layout.rows(row, 0, images=1)
    return list(found)


@given(tables(OF_MARIADB), st.booleans())
def test_mariadb_s_columns_have_their_values_whatever_stands_in_front(columns: list[Made], listed: bool) -> None:
    table = table_of(table_map(columns, listed=listed))
    assert values(columns, table, mariadb=True) == [each.value for each in columns]


@given(tables(OF_MYSQL), st.booleans())
def test_mysql_s_columns_have_their_values_whatever_stands_in_front(columns: list[Made], listed: bool) -> None:
    table = table_of(table_map(columns, listed=listed))
    assert values(columns, table, mariadb=False) == [each.value for each in columns]


def test_a_vector_of_mysql_has_a_collation_and_is_refused_by_name() -> None:
    columns = [Made(Kind(242, b"\x04", width=4), False, 63), Made(TEXTUAL[0], False, 45)]
    with pytest.raises(EventError, match="the column a0 has type 242, which is not supported"):
        layout_of(table_of(table_map(columns)), COLLATIONS, None, mariadb=False)


@given(tables(OF_MARIADB), st.sampled_from(["signedness", "charsets", "names", "sets", "enums", "enum_charsets"]))
def test_a_list_that_is_too_short_or_too_long_is_refused(columns: list[Made], name: str) -> None:
    table = table_of(table_map(columns))
    listed = getattr(table, name)
    for changed in [] if listed is None else [listed[:-1], listed * 2]:
        with pytest.raises(EventError, match=rf"the table map of d\.t lists {len(changed)} "):
            layout_of(table._replace(**{name: changed}), COLLATIONS, None)


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        (NUMBERS[0], "signedness", "whether the column a0 has a sign"),
        (TEXTUAL[0], "charsets", "which character set the column a0 has"),
        (CHOICES[0], "enums", "what members the column a0 has"),
        (CHOICES[1], "sets", "what members the column a0 has"),
        (CHOICES[0], "enum_charsets", "which character set the column a0 has"),
    ],
)
def test_what_a_table_map_with_names_leaves_out_is_not_guessed(kind: Kind, name: str, reason: str) -> None:
    table = table_of(table_map([Made(kind, True, 45)]))
    without: dict[str, Any] = {name: None}
    with pytest.raises(EventError, match=f"nothing says {reason}"):
        layout_of(table._replace(**without), COLLATIONS, None)


# --- maps without names -----------------------------------------------------------------------------------------------


def told(columns: Sequence[Made]) -> list[Told]:
    """What a server says about its columns if these are the current ones."""
    found = []
    for number, each in enumerate(columns):
        kind = each.kind
        code, meta = (kind.meta[0], kind.meta[1:] + b"\x00") if kind.code == 254 else (kind.code, kind.meta)
        charset = COLLATIONS[each.collation if kind.width and kind.code != 255 else 63]
        texts = (TEXTS[each.collation],) if kind.members and each.collation != 63 else (None,)
        values = tuple(text if isinstance(text, str) else None for text in texts)
        logged = frozenset({(code, meta)})
        unsigned = each.unsigned and kind.unsigned is not None
        found.append(Told(f"n{number}", unsigned, charset, values, 0, logged, each.nullable))
    return found


@given(tables(OF_MARIADB), st.sampled_from(["MINIMAL", "NO_LOG"]), st.booleans())
def test_a_map_without_names_is_read_with_the_columns_of_now(columns: list[Made], metadata: str, listed: bool) -> None:
    table = table_of(table_map(columns, listed=listed, metadata=metadata))
    layout = layout_of(table, COLLATIONS, told(columns))
    row = bytes((len(columns) + 7) // 8) + b"".join(each.bytes for each in columns)
    assert list(layout.rows(row, 0, images=1)) == [([each.value for each in columns],)]
    assert [column.name for column in layout.columns] == [f"n{number}" for number in range(len(columns))]


@given(tables(OF_MARIADB), st.sampled_from(["MINIMAL", "NO_LOG"]), st.data())
def test_a_map_of_another_table_than_that_of_now_is_refused(
    columns: list[Made], metadata: str, data: st.DataObject
) -> None:
    now = data.draw(st.permutations(columns) | tables(OF_MARIADB).filter(lambda other: len(other) == len(columns)))
    maps = [table_map(each, metadata=metadata) for each in (columns, now)]
    if maps[0] == maps[1]:
        return
    compared = [
        [(each.kind.code, each.kind.meta, each.nullable, *_shown(each, metadata)) for each in made]
        for made in (columns, now)
    ]
    if compared[0] == compared[1]:  # they differ in something irrelevant: the collation of bytes
        return
    with pytest.raises(EventError, match="was another one than n"):
        layout_of(table_of(maps[0]), COLLATIONS, told(now))


def _shown(made: Made, metadata: str) -> tuple[object, ...]:
    """What a map with minimal metadata says besides. YEAR is always unsigned."""
    if metadata == "NO_LOG":
        return ()
    kind = made.kind
    unsigned = made.unsigned if kind.unsigned is not None and kind.code != 13 else None
    return (unsigned, made.collation if kind.width and kind.code != 255 else None)


def known(full: str, octets: int = 0, values: tuple[str, ...] = ()) -> Known:
    kind = full.partition("(")[0].partition(" ")[0]
    return Known("v", kind, full, "utf8mb4", "utf8mb4_bin", values, 0, octets=octets)


@pytest.mark.parametrize(
    ("column", "logged"),
    [
        (known("bigint(20) unsigned"), [(8, b"")]),
        (known("decimal(65,30)"), [(246, b"\x41\x1e")]),
        (known("time(3)"), [(19, b"\x03")]),
        (known("datetime"), [(12, b""), (18, b"\x00")]),
        (known("bit(10)"), [(16, b"\x02\x01")]),
        (known("char(255)", 1020), [(254, b"\xfc\x03")]),
        (known("varchar(300) /*M!100301 COMPRESSED*/", 1200), [(141, b"\xb1\x04")]),
        (known("mediumtext", 1 << 24), [(252, b"\x03")]),
        (known("blob /*M!100301 COMPRESSED*/", 65535), [(140, b"\x02")]),
        (known("enum", 0, ("a",) * 256), [(247, b"\x02\x00")]),
        (known("set", 0, ("a",) * 33), [(248, b"\x08\x00")]),
        (known("geomcollection"), [(255, b"\x04")]),
        (known("json"), [(245, b"\x04")]),
        (known("vector(3)"), []),
    ],
)
def test_how_a_column_would_be_logged(column: Known, logged: list[tuple[int, bytes]]) -> None:
    assert sorted(logged_as(column)) == logged


# --- events -----------------------------------------------------------------------------------------------------------


def event(kind: int, body: bytes, end: int) -> bytes:
    return struct.pack("<IBIIIH", 5, kind, 1, 19 + len(body), end, 0) + body


def begun(reader: Reader) -> None:
    assert isinstance(reader.read(event(GTID, struct.pack("<QIB", 7, 0, 0) + bytes(6), 100)), Begin)


INT = Made(NUMBERS[3], False, 63)
ROWS = (1).to_bytes(6, "little") + bytes(2) + b"\x01\x01" + b"\x00\x05\x00\x00\x00" * 3


def test_rows_whose_columns_nobody_knows_end_it_with_the_table_and_the_place() -> None:
    reader = Reader(Place("", "bin.7", 4), COLLATIONS, mariadb=True)
    begun(reader)
    with pytest.raises(
        EventError, match=r"rows of d\.t were logged before .*--row-metadata any .*\(bin\.7, before position 900\)"
    ):
        reader.read(event(TABLE_MAP, table_map([INT], metadata="NO_LOG"), 900))


def test_the_columns_of_now_are_asked_for_only_if_that_is_wanted() -> None:
    reader = Reader(Place("", "bin.7", 4), COLLATIONS, mariadb=True, any_metadata=True)
    begun(reader)
    body = event(TABLE_MAP, table_map([INT], metadata="MINIMAL"), 900)
    with pytest.raises(TableUnknownError):
        reader.read(body)
    reader.tell("d", "t", told([INT]))
    assert reader.read(body) is None


def test_rows_of_a_table_that_is_not_chosen_are_counted_whatever_its_columns_were() -> None:
    reader = Reader(Place("", "bin.7", 4), COLLATIONS, mariadb=True, chosen=lambda database, name: False)
    begun(reader)
    assert (
        reader.read(event(TABLE_MAP, (1).to_bytes(6, "little") + table_map([INT], metadata="NO_LOG")[6:], 900)) is None
    )
    change = reader.read(event(WRITE, ROWS, 950))
    assert isinstance(change, Change)
    assert len(change.rows) == 3


# --- neighbours -------------------------------------------------------------------------------------------------------


def every(kinds: list[Kind]) -> list[Made]:
    """All types, signed and unsigned, in all collations."""
    found = []
    for kind in kinds:
        collations = sorted(COLLATIONS) if kind.members or (kind.width and kind.code != 255) else [63]
        found += [
            Made(kind, unsigned, collation)
            for unsigned in ([False, True] if kind.unsigned is not None else [False])
            for collation in collations
        ]
    return found


@pytest.mark.parametrize("mariadb", [True, False])
def test_every_type_in_front_of_every_other(mariadb: bool) -> None:
    for pair in itertools.product(every(OF_MARIADB if mariadb else OF_MYSQL), repeat=2):
        columns = [*pair, Made(TEXTUAL[0], False, 8)]
        table = table_of(table_map(columns))
        assert values(columns, table, mariadb=mariadb) == [each.value for each in columns], pair
