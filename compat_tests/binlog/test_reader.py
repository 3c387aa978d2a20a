"""The transactions of a binary log, from all kinds of statements."""

from __future__ import annotations

import pytest

from barnabas.connect.binlog.events import EventError
from barnabas.connect.binlog.reader import End, Statement
from compat_tests.binlog.mariadb import MariaDb
from compat_tests.binlog.reading import items, place_of, shape


@pytest.fixture(scope="module", autouse=True)
def tables(mariadb: MariaDb) -> None:
    mariadb.sql("CREATE DATABASE r", "USE r", "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    mariadb.sql("USE r", "CREATE TABLE old (id INT PRIMARY KEY, v VARCHAR(20)) ENGINE=MyISAM")


def seen(mariadb: MariaDb, *statements: str) -> list[str]:
    place = place_of(mariadb)
    mariadb.sql("USE r", *statements)
    return shape(items(mariadb, place))


def test_a_transaction_is_its_changes_and_a_commit(mariadb: MariaDb) -> None:
    statements = ["INSERT INTO t VALUES (1,'a'),(2,'b')", "UPDATE t SET v='c' WHERE id=1", "DELETE FROM t WHERE id=2"]
    found = seen(mariadb, "START TRANSACTION", *statements, "COMMIT")
    assert found == ["begin", "insert", "update", "delete", "end"]


def test_what_is_rolled_back_is_not_there_and_savepoints_are_no_changes(mariadb: MariaDb) -> None:
    assert seen(mariadb, "START TRANSACTION", "INSERT INTO t VALUES (10,'a')", "ROLLBACK") == []
    statements = ["INSERT INTO t VALUES (11,'a')", "SAVEPOINT s", "INSERT INTO t VALUES (12,'b')", "ROLLBACK TO s"]
    found = seen(mariadb, "START TRANSACTION", *statements, "INSERT INTO t VALUES (13,'c')", "COMMIT")
    assert found == ["begin", "insert", "insert", "end"]


def test_a_table_without_transactions_has_a_commit_without_a_number(mariadb: MariaDb) -> None:
    place = place_of(mariadb)
    mariadb.sql("USE r", "INSERT INTO old VALUES (1,'a')")
    found = items(mariadb, place)
    assert shape(found) == ["begin", "insert", "end"]
    assert isinstance(found[-1], End)
    assert found[-1].xid is None


def test_ddl_is_a_statement_that_ends_its_group(mariadb: MariaDb) -> None:
    place = place_of(mariadb)
    mariadb.sql("USE r", "ALTER TABLE t ADD COLUMN added INT", "RENAME TABLE t TO t2", "RENAME TABLE t2 TO t")
    mariadb.sql("USE r", "INSERT INTO t VALUES (20,'a',7)", "ALTER TABLE t DROP COLUMN added", "TRUNCATE old")
    found = items(mariadb, place)
    ddl = ["begin", "statement", "end"]
    assert shape(found) == [*ddl * 3, "begin", "insert", "end", *ddl * 2]
    assert [item.sql for item in found if isinstance(item, Statement)][:1] == ["ALTER TABLE t ADD COLUMN added INT"]


def test_a_table_made_of_a_query_is_a_statement_and_rows_in_one_group(mariadb: MariaDb) -> None:
    found = seen(mariadb, "CREATE TABLE made AS SELECT seq AS n FROM seq_1_to_3")
    assert found == ["begin", "statement", "insert", "end"]


def test_an_xa_transaction_is_prepared_with_its_rows_and_ended_by_a_later_group(mariadb: MariaDb) -> None:
    place = place_of(mariadb)
    mariadb.sql(
        "USE r", "XA START 'x'", "INSERT INTO t VALUES (30,'a')", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"
    )
    found = items(mariadb, place)
    assert shape(found) == ["begin", "insert", "end", "begin", "statement", "end"]
    prepared = found[2]
    assert isinstance(prepared, End)
    assert prepared.is_prepared


def test_ddl_in_another_character_set_is_text(mariadb: MariaDb) -> None:
    place = place_of(mariadb)
    mariadb.sql("SET NAMES utf8mb4", "USE r", "CREATE TABLE `täble` (`spälte` INT) COMMENT 'ö'")
    mariadb.sql("SET NAMES latin1", "USE r", "CREATE TABLE l1 (v INT) COMMENT 'ascii'")
    texts = [item.sql for item in items(mariadb, place) if isinstance(item, Statement)]
    assert texts == ["CREATE TABLE `täble` (`spälte` INT) COMMENT 'ö'", "CREATE TABLE l1 (v INT) COMMENT 'ascii'"]


def test_rotated_files_and_checksums_that_come_and_go(mariadb: MariaDb) -> None:
    place = place_of(mariadb)
    for number, algorithm in enumerate(["NONE", "CRC32", "NONE"], 100):
        mariadb.sql(f"SET GLOBAL binlog_checksum={algorithm}", "USE r", f"INSERT INTO t VALUES ({number},'x')")
        mariadb.sql("FLUSH BINARY LOGS", "USE r", f"INSERT INTO t VALUES ({number + 50},'y')")
    found = shape(items(mariadb, place))
    assert found == ["begin", "insert", "end"] * 6


@pytest.mark.parametrize("statement", ["INSERT INTO t VALUES (RAND()*1000+1000,'x')", "UPDATE t SET v='z' LIMIT 1"])
def test_a_change_that_is_logged_as_a_statement_stops_the_reader(mariadb: MariaDb, statement: str) -> None:
    place = place_of(mariadb)
    mariadb.sql("USE r", "SET SESSION binlog_format=STATEMENT", statement)
    with pytest.raises(EventError, match=r"logged as a statement.*binlog_format=ROW.*bin\.\d+, before position"):
        items(mariadb, place)


def test_a_minimal_row_image_stops_the_reader(mariadb: MariaDb) -> None:
    place = place_of(mariadb)
    mariadb.sql("USE r", "SET SESSION binlog_row_image=MINIMAL", "UPDATE t SET v='m' WHERE id=1")
    with pytest.raises(EventError, match="binlog_row_image=FULL"):
        items(mariadb, place)
