"""The messages that an untrusted writer may put into a topic, and their effect."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.connect.apply.changes import (
    BadMessageError,
    Ddl,
    Emptied,
    Row,
    asked_of,
    literals_of,
)
from barnabas.connect.apply.ddl import judged
from barnabas.connect.apply.tables import Table
from barnabas.connect.binlog.charsets import Undecoded, literal
from barnabas.connect.binlog.selected import Known

ID = Known("id", "int", "int(11)", "binary", "", (), 1)


def column(name: str, kind: str, charset: str = "binary") -> Known:
    return Known(name, kind, kind, charset, "", (), 0)


def tdsql(**fields: Any) -> bytes:
    told = {"eventtypestr": "insert", "db": "d", "table": "t", "where": [], "field": ["1"], **fields}
    return json.dumps(told).encode()


def asked(value: bytes) -> object:
    return asked_of(value, copied=False)


@pytest.mark.parametrize(
    "text",
    [
        "1); DROP TABLE t; --",
        "1 OR 1=1",
        "(SELECT 1)",
        "'a' 'b'",
        "'a'b'",
        "'\\'",
        "'a",
        "''''",
        "SLEEP(9)",
        "@@version",
        "`id`",
        "NULL--",
        "x'0'",
        "x'zz'",
        "b''",
        "_utf8 'a'",
        "_utf8mb4 x'00' OR 1",
        "1e",
        "0x41",
        '"a"',
        "",
        " 1",
        "1\n",
        "'a'\n",
        "inf",
        "DEFAULT",
        "-",
        "'\\\\''",
        "+1",
        "_UTF8 x''",
    ],
)
def test_what_is_more_than_a_literal_is_refused(text: str) -> None:
    with pytest.raises(BadMessageError, match="not one SQL literal"):
        asked(tdsql(field=[text]))


@given(st.one_of(st.text(), st.binary(), st.builds(Undecoded, st.just("geostd8"), st.binary())))
def test_every_literal_that_is_written_is_read(value: str | bytes | Undecoded) -> None:
    assert asked(tdsql(field=[literal(value)])) == Row("d", "t", None, [literal(value)])


@pytest.mark.parametrize("text", ["NULL", "0", "-12", "1.50", "-1.5e-07", "1e+16", "b'101'", "x''", "'0000'"])
def test_other_literals(text: str) -> None:
    assert asked(tdsql(field=[text])) == Row("d", "t", None, [text])


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"no json",
        b"[]",
        b"1",
        b'"x"',
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"eventtypestr": 1}',
        tdsql(db=1),
        tdsql(db=""),
        tdsql(table=None),
        tdsql(field=[]),
        tdsql(field="1"),
        tdsql(field=[1]),
        tdsql(eventtypestr="x"),
        b'{"op": "c"}',
        b'{"op": "c", "source": 1}',
        b'{"op": "x", "source": {"db": "d", "table": "t"}}',
        b'{"op": "u", "source": {"db": "d", "table": "t"}, "before": null, "after": {}}',
        b'{"type": "insert"}',
        b'{"type": "x", "database": "d", "table": "t"}',
        b'{"type": "insert", "database": "d", "table": "t", "data": 1}',
        b'{"eventtypestr": []}',
        b'{"op": [], "source": {"db": "d", "table": "t"}}',
    ],
)
def test_what_is_no_message_is_refused(value: bytes) -> None:
    with pytest.raises(BadMessageError):
        asked(value)


@given(st.binary())
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    try:
        asked(value)
    except BadMessageError:
        pass


def test_only_a_snapshot_empties_a_table_and_only_its_own() -> None:
    value = tdsql(eventtypestr="query", sql="TRUNCATE TABLE `t`")
    assert asked_of(value, copied=True) == Emptied("d", "t")
    assert asked_of(value, copied=False) == Ddl("d", "TRUNCATE TABLE `t`")
    other = tdsql(eventtypestr="query", sql="TRUNCATE TABLE `u`")
    assert asked_of(other, copied=True) == Ddl("d", "TRUNCATE TABLE `u`")


def test_names_are_quoted() -> None:
    table = Table("d`; DROP DATABASE x; --", "t`", [ID._replace(name="i`d")])
    assert table.inserted([["1"]]) == "INSERT INTO `d``; DROP DATABASE x; --`.`t``` (`i``d`) VALUES (1)"
    assert table.updated(["1"], ["2"]) == "UPDATE `d``; DROP DATABASE x; --`.`t``` SET `i``d` = 2 WHERE `i``d` = 1"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", "1; DROP TABLE t"),
        ("int", 1.5),
        ("int", True),
        ("decimal", "1 OR 1"),
        ("decimal", 5),
        ("double", "1"),
        ("bit", -1),
        ("bit", "1"),
        ("blob", "no base64!"),
        ("blob", "größe"),
        ("binary", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")),
        ("uuid", "é"),
        ("varchar", 5),
        ("varchar", ["x"]),
        ("datetime", 5),
        ("int", {"a": 1}),
        ("uuid", "x' OR 1"),
        ("double", float("inf")),
    ],
)
def test_a_value_that_is_none_of_its_column_is_refused(kind: str, value: Any) -> None:
    charset = "utf8mb4" if kind == "varchar" else "binary"
    with pytest.raises(BadMessageError, match="is not a value of v"):
        literals_of({"v": value}, [column("v", kind, charset)], "d.t")


_KINDS = ["int", "bigint", "decimal", "float", "double", "bit", "year", "date", "timestamp", "enum", "set", "char"]
_KINDS += ["varchar", "text", "binary", "blob", "geometry", "uuid", "inet6"]
_VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.integers())
_NUMBERS = st.sampled_from(["1e39", "1e999", "-1e999", "9" * 400, "b'" + "1" * 20_000 + "'", "x'00'", "NULL", "'1'"])


@given(st.sampled_from(_KINDS), _VALUES, st.sampled_from(["utf8mb4", "latin1", "binary", "gbk"]))
def test_any_value_in_any_column_is_a_literal_or_refused(kind: str, value: Any, charset: str) -> None:
    known = column("v", kind, charset)
    try:
        row = literals_of({"v": value}, [known], "d.t")
    except BadMessageError:
        return
    for key in (0, 1):
        table = Table("d", "t", [known._replace(key=key)])
        table.inserted([row]), table.deleted([row]), table.updated(row, ["0"])


@given(st.sampled_from(_KINDS), _NUMBERS)
def test_any_literal_is_looked_for_in_any_column(kind: str, literal: str) -> None:
    row = literals_of([literal], [column("v", kind)], "d.t")
    for key in (0, 1):
        found = Table("d", "t", [column("v", kind)._replace(key=key)]).deleted([row])
        assert "inf" not in found


def test_values_of_the_other_formats_are_literals() -> None:
    columns = [ID, column("a", "varchar", "utf8mb4"), column("b", "blob"), column("c", "bit"), column("d", "datetime")]
    row = {"d": "2024-01-01'", "id": -5, "a": "it's \\ ; --", "b": "AP8=", "c": 5}
    expected = ["-5", "'it\\'s \\\\ ; --'", "x'00ff'", "b'101'", "'2024-01-01\\''"]
    assert literals_of(row, columns, "d.t") == expected
    with pytest.raises(BadMessageError, match="do not both have the column"):
        literals_of({**row, "more": 1}, columns, "d.t")
    with pytest.raises(BadMessageError, match="apply the format tdsql"):
        literals_of({"a": "YWJj"}, [column("a", "varchar", "gbk")], "d.t")
    with pytest.raises(BadMessageError, match="has 5 columns in the target, and the row has 1"):
        literals_of(["1"], columns, "d.t")


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (id INT, `select` INT) ENGINE=InnoDB COMMENT='SELECT'",
        "ALTER TABLE t ADD c INT",
        "DROP TABLE t",
        "CREATE DATABASE /*!32312 IF NOT EXISTS*/ `x` /*!40100 DEFAULT CHARACTER SET utf8mb4 */",
        "TRUNCATE t",
        "CREATE ALGORITHM=UNDEFINED DEFINER=`a`@`b` SQL SECURITY DEFINER VIEW v AS SELECT 1",
        "RENAME TABLE a TO b",
        "CREATE TABLE t (engine INT, connection INT, data INT)",
    ],
)
def test_statements_about_tables_are_run(sql: str) -> None:
    assert judged(sql, "d").run


@pytest.mark.parametrize(
    "sql",
    [
        "GRANT ALL ON *.* TO x",
        "CREATE USER x",
        "CREATE TRIGGER t BEFORE INSERT ON x FOR EACH ROW SET @a = 1",
        "CREATE DEFINER=`a`@`b` PROCEDURE p() SELECT 1",
        "SET GLOBAL x = 1",
        "SET PASSWORD = 'x'",
        "DROP EVENT e",
        "XA COMMIT 'x'",
        "FLUSH TABLES",
    ],
)
def test_statements_about_other_things_are_left_out(sql: str) -> None:
    verdict = judged(sql, "d")
    assert not verdict.run
    assert not verdict.refused


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "INSERT INTO t VALUES (1)",
        "DELETE FROM t",
        "LOAD DATA INFILE 'x' INTO TABLE t",
        "CALL p()",
        "",
        "INSTALL SONAME 'x'",
        "SHUTDOWN",
        "KILL 1",
        "USE mysql",
        "DO SLEEP(9)",
        "PREPARE x FROM 'y'",
        "XA ROLLBACK 'x'",
        "CREATE TABLE x AS SELECT * FROM mysql.user",
        "CREATE TABLE x (id INT) DATA DIRECTORY='/etc'",
        "LOCK TABLES t READ",
        "CREATE TABLE x (id INT) ENGINE=FEDERATED CONNECTION='mysql://x'",
        "ALTER TABLE x ENGINE 'connect'",
        "CREATE TABLE x (id INT) /*!50000 ENGINE=CSV */",
        "CREATE TABLE x (id INT) ENGINE = `spider`",
        "HANDLER t OPEN",
        "DROP TABLE mysql.user",
        "DROP DATABASE mysql",
        "DROP DATABASE `MySQL`",
        "RENAME TABLE d.t TO sys.t",
        "SIGNAL 1",
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE mysql.user",
        "DROP TABLE barnabas_apply.positions",
        "TRUNCATE",
        "CREATE SEQUENCE s",
        "/* CREATE TABLE t (id INT) */ SELECT 1",
        "BEGIN NOT ATOMIC SELECT 1; END",
    ],
)
def test_other_statements_are_refused(sql: str) -> None:
    assert judged(sql, "d").refused


@pytest.mark.parametrize("value", [literal(bytes(1_000_000)), literal("\\'" * 500_000)])
def test_a_long_literal_needs_little_memory(value: str) -> None:
    message = tdsql(field=[value])
    assert asked(message) == Row("d", "t", None, [value])
    tracemalloc.start()
    try:
        assert asked(message) == Row("d", "t", None, [value])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(value)
