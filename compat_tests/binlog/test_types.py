"""Every type of column: the literal that a subscriber reads, inserted again, gives the identical value.

docs/binlog-types.md has the table of the results; BARNABAS_RENEW_TYPES=1 writes it again.
"""

from __future__ import annotations

import os

import msgspec
import pytest
import trio

from barnabas.connect.binlog.events import EventError
from barnabas.connect.binlog.messages import plain
from barnabas.connect.binlog.selected import SESSION as selected_session
from barnabas.connect.binlog.selected import Selected
from barnabas.connect.binlog.server import Server, known_columns
from compat_tests.binlog.mariadb import MariaDb
from compat_tests.binlog.reading import changes, place_of
from compat_tests.tools import ROOT

#: Each type of a column, and values as SQL.
TYPES = {
    "TINYINT": ["-128", "0", "127"],
    "TINYINT UNSIGNED": ["255", "128"],
    "SMALLINT": ["-32768", "32767"],
    "SMALLINT UNSIGNED": ["65535"],
    "MEDIUMINT": ["-8388608", "8388607"],
    "MEDIUMINT UNSIGNED": ["16777215"],
    "INT": ["-2147483648", "2147483647"],
    "INT UNSIGNED ZEROFILL": ["4294967295", "7"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807"],
    "BIGINT UNSIGNED": ["18446744073709551615"],
    "BOOLEAN": ["TRUE", "FALSE"],
    "DECIMAL(65,30)": ["-12345678901234567890123456789012345.123456789012345678901234567890", "0.1", "-0.000000001"],
    "DECIMAL(10,0)": ["-1", "9999999999"],
    "DECIMAL(5,5)": ["0.99999", "-0.00001"],
    "DECIMAL(9,2) UNSIGNED": ["1234567.89"],
    "FLOAT": ["1.1", "-0.0", "3.4028234e38", "1.17549435e-38", "16777216", "0.333333343"],
    "DOUBLE": ["1.1", "-1.7976931348623157e308", "2.2250738585072014e-308", "0.1"],
    "BIT(1)": ["b'1'", "b'0'"],
    "BIT(10)": ["b'1000000001'"],
    "BIT(64)": ["b'1000000000000000000000000000000000000000000000000000000000000001'"],
    "YEAR": ["1901", "2155", "'0000'", "2023"],
    "DATE": ["'0000-00-00'", "'1000-01-01'", "'9999-12-31'", "'2024-02-00'"],
    "TIME": ["'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'"],
    "TIME(1)": ["'-00:00:00.5'", "'12:34:56.7'"],
    "TIME(3)": ["'-01:02:03.004'", "'838:59:59.999'"],
    "TIME(6)": ["'-838:59:59.999999'", "'00:00:00.000001'", "'-00:00:00.000001'"],
    "DATETIME": ["'0000-00-00 00:00:00'", "'9999-12-31 23:59:59'", "'2024-02-29 12:00:00'"],
    "DATETIME(2)": ["'2024-02-29 12:00:00.25'"],
    "DATETIME(6)": ["'1000-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'"],
    "TIMESTAMP NULL": ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "'0000-00-00 00:00:00'"],
    "TIMESTAMP(6) NULL": ["'2024-01-01 00:00:00.123456'", "'1970-01-01 00:00:01.000001'"],
    "CHAR(10)": ["''", "'a'", "' lead'", "'1234567890'"],
    "CHAR(255) CHARACTER SET utf8mb4": ["REPEAT('ö',255)", "'😀'"],
    "VARCHAR(10)": ["''", "'it''s'", "'back\\\\slash'", "'\\n\\r\\0\\Z\"'", "'trail '"],
    "VARCHAR(300)": ["REPEAT('x',300)", "'äöü€😀'"],
    "VARCHAR(300) COMPRESSED": ["REPEAT('x',300)", "''", "'short'"],
    "TEXT": ["REPEAT('long ',2000)", "''"],
    "TEXT COMPRESSED": ["REPEAT('long ',2000)", "''", "'ö'"],
    "BLOB COMPRESSED": ["REPEAT(x'00ff',2000)"],
    "LONGTEXT": ["REPEAT('ä',70000)"],
    "TINYTEXT": ["'tiny'"],
    "MEDIUMTEXT": ["REPEAT('m',100)"],
    "BINARY(8)": ["x'0102000000000000'", "x''", "x'ffffffffffffffff'"],
    "VARBINARY(300)": ["x'00'", "x'27225c0a0d1a'", "''"],
    "BLOB": ["x'00ff00'", "''"],
    "LONGBLOB": ["REPEAT(x'00ff',100000)"],
    "ENUM('a','it''s','ö','')": ["'a'", "'it''s'", "'ö'", "''"],
    "SET('x','y','z''')": ["''", "'x'", "'x,z'''", "'x,y,z'''"],
    "SET('a','','b')": ["2", "0", "3", "6", "7"],
    r"ENUM('b\\s','n\nl','c\rr','z\0z','q''q','\Z','t\t','%_')": [str(n) for n in range(1, 9)],
    r"SET('b\\s','n\nl','c\rr','z\0z','q''q','\Z','t\t','%_')": ["0", "255", "170", "15"],
    "ENUM('ö','😀','😁','?')": ["1", "2", "3", "4"],
    "SET('ö','😀','😁','?')": ["0", "1", "6", "15"],
    "ENUM('ö','😀','😁','?') COLLATE utf8mb4_bin": ["1", "2", "3", "4"],
    "SET('ö','😀','😁','?') COLLATE utf8mb4_bin": ["0", "1", "6", "15"],
    "ENUM('a','A','Ä','b ')": ["1", "2", "3", "4"],
    "SET('a','A','Ä','b ') COLLATE utf8mb4_bin": ["1", "3", "15"],
    "ENUM('a',x'e4') CHARACTER SET binary": ["1", "2"],
    "SET('a',x'e4') CHARACTER SET binary": ["0", "1", "3"],
    "ENUM('a',x'c0') CHARACTER SET geostd8": ["1", "2"],
    "SET('a',x'c0','') CHARACTER SET geostd8": ["0", "1", "2", "3", "4"],
    "ENUM('ö','漢') CHARACTER SET ucs2": ["1", "2"],
    "SET('ö','','漢') CHARACTER SET utf16le": ["0", "2", "5", "7"],
    "JSON": ['\'{"a": [1, "ö", null]}\''],
    "GEOMETRY": ["ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POLYGON((0 0,0 1,1 1,0 0))', 4326)"],
    "POINT": ["POINT(1.5, -2.5)"],
    "UUID": ["'123e4567-e89b-12d3-a456-426655440000'"],
    "INET6": ["'::1'", "'2001:db8::ff00:42:8329'"],
    "INET4": ["'192.0.2.1'"],
}
#: Character sets, and texts that each has.
CHARSETS = {
    "latin1": ["x'41e4808d818f909d'"],
    "latin2": ["'łódź'"],
    "latin5": ["'ığş'"],
    "latin7": ["'ąč'"],
    "cp1250": ["'łž'"],
    "cp1251": ["'Привет'"],
    "cp1256": ["'سلام'"],
    "cp1257": ["'ąž'"],
    "cp850": ["'éß'"],
    "cp852": ["'łó'"],
    "cp866": ["'Привет'"],
    "koi8r": ["'Привет'"],
    "koi8u": ["'Київ'"],
    "greek": ["'Ελλάδα'"],
    "hebrew": ["'שלום'"],
    "macroman": ["'é€'"],
    "macce": ["'ł'"],
    "tis620": ["'ไทย'"],
    "armscii8": ["x'c0c1'"],
    "geostd8": ["x'c0c1'"],
    "keybcs2": ["x'8081'"],
    "dec8": ["x'e4f6'"],
    "hp8": ["x'cc'"],
    "swe7": ["'abc'", "x'405b5c5d5e607b7c7d7e'", "x'7f'"],
    "ascii": ["'plain'"],
    "gbk": ["'汉字'", "x'a1a4'", "x'815c'"],
    "gb2312": ["'汉字'"],
    "big5": ["'漢字'", "x'a145'"],
    "euckr": ["'한국'"],
    "ujis": ["'日本語'", "x'a1c0'"],
    "eucjpms": ["'日本語'", "x'ada1'"],
    "sjis": ["'日本語'", "x'815f'", "x'8160'"],
    "cp932": ["'日本語'", "x'8160'", "x'fa40'"],
    "ucs2": ["'aö漢'"],
    "utf16": ["'aö😀'"],
    "utf16le": ["'aö😀'"],
    "utf32": ["'aö😀'"],
    "utf8mb3": ["'aö漢'"],
}
ROWS = [(kind, value) for kind, values in TYPES.items() for value in values]
ROWS += [(f"VARCHAR(50) CHARACTER SET {charset}", value) for charset, values in CHARSETS.items() for value in values]
ROWS += [(f"TEXT CHARACTER SET {charset}", value) for charset, values in CHARSETS.items() for value in values]
SESSION = ("SET sql_mode=''", "SET time_zone='+00:00'", "SET NAMES utf8mb4")


TABLE = ROOT / "docs" / "binlog-types.md"
_SHOWN = 60
_HEAD = """# Every type of column, written and read back

Written by `compat_tests/binlog/test_types.py`, with MariaDB 10.11. It writes each value, reads it from the binary log
and in a snapshot, inserts the literal into another table, and has the server compare both, as bytes and as text: with
compressed events and without, with full metadata in the log and with none. Of each type the table says how many values
came back identical, and shows one: as it was written, as `tdsql` has it, and as `debezium` and `maxwell` have it.

| type | values | written | `tdsql` | `debezium`, `maxwell` |
| --- | --- | --- | --- | --- |
"""


def table_of(found: dict[int, tuple[str, str]]) -> str:
    """The table of docs/binlog-types.md, from the literal and the JSON of each value by its number in ROWS."""
    lines = []
    for kind in dict.fromkeys(kind for kind, _ in ROWS):
        mine = [(value, *found[number]) for number, (of, value) in enumerate(ROWS) if of == kind]
        example = max(mine, key=lambda each: min(len(each[1]), _SHOWN) - 2 * max(len(each[1]) - _SHOWN, 0))
        cells = " | ".join(f"`{_short(text)}`" for text in example)
        lines.append(f"| `{kind}` | {len(mine)} | {cells} |\n")
    return _HEAD + "".join(lines)


def _short(text: str) -> str:
    shown = "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text[: _SHOWN + 1])
    return shown if len(text) <= _SHOWN else f"{shown[:20]}... ({len(text):,} characters)"


def selected(mariadb: MariaDb, database: str, number: int) -> list[tuple[str, list[str]]]:
    """The rows of a table by key, as a snapshot reads them."""

    async def ask() -> list[tuple[str, list[str]]]:
        asked = Server(mariadb.reader(), 4242, any_metadata=True)
        async with await asked.open() as connection:
            table = Selected(database, f"a{number}", await known_columns(connection, database, f"a{number}"))
            for statement in selected_session:
                await connection.query(statement)
            rows = [table.row(raw) async for raw in connection.raw_rows(table.sql(None, 1000))]
        literals = [table.layout.literals(row) for row in rows]
        return [(each[0], each) for each in literals]

    return trio.run(ask)


@pytest.mark.parametrize(("compress", "metadata"), [("OFF", "FULL"), ("ON", "NO_LOG")])
def test_the_literals_of_all_types_insert_the_same_values(mariadb: MariaDb, compress: str, metadata: str) -> None:
    database = f"types_{compress}_{metadata}".lower()
    mariadb.sql(
        f"SET GLOBAL log_bin_compress={compress}",
        "SET GLOBAL log_bin_compress_min_len=10",
        f"SET GLOBAL binlog_row_metadata={metadata}",
        f"CREATE DATABASE {database}",
    )
    kinds = list(dict.fromkeys(kind for kind, _ in ROWS))
    made = [f"USE {database}"]
    for number, kind in enumerate(kinds):
        for side in "ab":
            made.append(f"CREATE TABLE {side}{number} (id INT PRIMARY KEY, v {kind}, w {kind})")
    mariadb.sql(*SESSION, *made)
    place = place_of(mariadb)
    values = [f"USE {database}"]
    for key, (kind, value) in enumerate(ROWS):
        number = kinds.index(kind)
        values.append(f"INSERT INTO a{number} VALUES ({key}, {value}, NULL)")
        values.append(f"UPDATE a{number} SET w = {value} WHERE id = {key}")
    mariadb.sql(*SESSION, *values)
    found = changes(mariadb, place)
    assert len(found) == 2 * len(ROWS)
    again, logged, shown = [f"USE {database}"], {}, {}
    for change in found:
        if change.kind == 24:
            ((before, after),) = change.rows
            row, value, null = change.layout.literals(before)
            assert null == "NULL"
            assert change.layout.literals(after) == [row, value, value]
            logged[row] = [row, value, value]
            shown[int(row)] = value, msgspec.json.encode(plain(before[1])).decode()
            again.append(f"INSERT INTO b{change.layout.table[1:]} VALUES ({row}, {value}, {value})")
            assert [column.name for column in change.layout.columns] == ["id", "v", "w"]
            assert change.layout.key == (0,)
    copied = {key: literals for number in range(len(kinds)) for key, literals in selected(mariadb, database, number)}
    for row, literals in copied.items():  # the server's own tables do not take characters of four bytes
        if metadata == "FULL" or "😀" not in ROWS[int(row)][0]:
            assert literals == logged[row]
    if metadata == "FULL":
        if os.environ.get("BARNABAS_RENEW_TYPES"):
            TABLE.write_text(table_of(shown))
        assert table_of(shown) == TABLE.read_text(), "BARNABAS_RENEW_TYPES=1 renews the documentation"
    mariadb.sql(*SESSION, *again)
    differ = {}
    for number, kind in enumerate(kinds):
        texts = "" if kind in ("GEOMETRY", "POINT") else "AND CAST(a.v AS CHAR) <=> CAST(b.v AS CHAR)"
        if kind.startswith(("ENUM", "SET")):
            texts += " AND a.v + 0 <=> b.v + 0 AND a.v + 0 <=> b.w + 0"
        rows = mariadb.sql(
            f"USE {database}",
            f"SELECT a.id, HEX(a.v), HEX(b.v), HEX(b.w) FROM a{number} a LEFT JOIN b{number} b USING (id) "
            f"WHERE NOT (HEX(a.v) <=> HEX(b.v) AND HEX(a.v) <=> HEX(b.w) {texts})",
        )
        if rows:
            differ[kind] = rows
    assert not differ


OLD = "SET GLOBAL mysql56_temporal_format = "


@pytest.mark.parametrize("fraction", ["", "(6)"])
def test_times_in_the_format_of_mariadb_5_3_come_unless_they_have_a_fraction(mariadb: MariaDb, fraction: str) -> None:
    """A DATETIME(6) of that format is as long as one without a fraction, and no table map distinguishes them."""
    mariadb.sql(
        "SET GLOBAL binlog_row_metadata = FULL", "CREATE DATABASE IF NOT EXISTS old", "DROP TABLE IF EXISTS old.t"
    )
    columns = "t TIME, s TIMESTAMP NULL, v VARCHAR(5)"
    mariadb.sql(OLD + "OFF", f"CREATE TABLE old.t (d DATETIME{fraction}, {columns})", OLD + "ON")
    place = place_of(mariadb)
    values = ["'2024-02-29 12:34:56'", "'-10:00:01'", "'2024-02-29 12:00:00'", "'x'"]
    mariadb.sql(*SESSION, f"INSERT INTO old.t VALUES ({', '.join(values)})")
    if fraction:
        with pytest.raises(
            EventError, match=r"a row of old\.t cannot be read: .*ALTER TABLE \.\.\. FORCE renews the table"
        ):
            changes(mariadb, place)
        mariadb.sql("ALTER TABLE old.t FORCE")
        place = place_of(mariadb)
        mariadb.sql(*SESSION, f"INSERT INTO old.t VALUES ({', '.join(values)})")
        values[0] = "'2024-02-29 12:34:56.000000'"
    (change,) = changes(mariadb, place)
    assert [change.layout.literals(image) for (image,) in change.rows] == [values]
