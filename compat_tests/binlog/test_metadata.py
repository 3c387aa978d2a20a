"""Rows from before an ALTER TABLE get the old columns or end the subscription; they get new ones only on request."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from compat_tests.binlog.applying import Applying, checksums
from compat_tests.binlog.mariadb import MariaDb
from compat_tests.binlog.reading import place_of
from compat_tests.binlog.subscriber import Subscriber, messages
from compat_tests.broker_process import Server

ANY = ("--row-metadata", "any")
FULL = "SET GLOBAL binlog_row_metadata = 'FULL'"


def metadata(server: MariaDb, value: str) -> None:
    server.sql(f"SET GLOBAL binlog_row_metadata = '{value}'")


def subscribed(folder: Path, mariadb: MariaDb, server: Server, name: str, *options: str) -> Subscriber:
    tables = ("--tables", f"{name}.*", "--format", "maxwell")
    return Subscriber(folder, mariadb, server.address, name, *tables, *options)


def rows(server: Server, topic: str) -> list[dict[str, object]]:
    return [each["data"] for each in messages(server.address, topic)]


@pytest.mark.parametrize("value", ["NO_LOG", "MINIMAL"])
def test_a_server_whose_log_does_not_say_what_columns_were_is_refused(
    tmp_path: Path, own_mariadb: MariaDb, server: Server, value: str
) -> None:
    metadata(own_mariadb, value)
    subscriber = subscribed(tmp_path, own_mariadb, server, f"plain_{value.lower()}")
    subscriber.start()
    told = subscriber.ended()
    assert f"has binlog_row_metadata={value}" in told
    assert f"run {FULL} there" in told
    assert "--row-metadata any" in told
    own_mariadb.sql(FULL)
    subscriber.start()
    subscriber.reading()
    assert subscriber.stop() == 0


def test_rows_from_before_full_metadata_end_it_with_the_place_until_they_are_taken_as_they_are_now(
    tmp_path: Path, own_mariadb: MariaDb, server: Server
) -> None:
    own_mariadb.sql("CREATE DATABASE early", "CREATE TABLE early.t (id INT PRIMARY KEY, a INT, b INT)")
    metadata(own_mariadb, "NO_LOG")
    subscriber = subscribed(tmp_path, own_mariadb, server, "early", *ANY)
    subscriber.start()
    subscriber.reading()
    own_mariadb.sql("INSERT INTO early.t VALUES (1, 10, 20)")
    subscriber.wait_for(place_of(own_mariadb).gtids)
    assert subscriber.stop() == 0
    own_mariadb.sql("INSERT INTO early.t VALUES (2, 10, 20)", FULL, "INSERT INTO early.t VALUES (3, 10, 20)")
    plain = subscribed(tmp_path, own_mariadb, server, "early")
    plain.start()
    told = plain.ended()
    assert "rows of early.t were logged before binlog_row_metadata was FULL" in told
    assert "(bin.000001, before position" in told
    assert [row["id"] for row in rows(server, "early.t")] == [1]
    subscriber.start()
    subscriber.wait_for(place_of(own_mariadb).gtids)
    assert subscriber.stop() == 0
    plain.start()
    plain.reading()
    own_mariadb.sql("INSERT INTO early.t VALUES (4, 10, 20)")
    plain.wait_for(place_of(own_mariadb).gtids)
    assert plain.stop() == 0
    assert rows(server, "early.t") == [{"id": number, "a": 10, "b": 20} for number in (1, 2, 3, 4)]


def test_a_transaction_that_was_open_when_full_metadata_was_set_ends_a_subscription_that_began_behind_it(
    tmp_path: Path, own_mariadb: MariaDb, server: Server
) -> None:
    own_mariadb.sql("CREATE DATABASE opened", "CREATE TABLE opened.t (id INT PRIMARY KEY, a INT)")
    metadata(own_mariadb, "NO_LOG")
    options = ("--tables", "opened.*", "--snapshot", "initial")
    subscriber = Subscriber(tmp_path, own_mariadb, server.address, "opened", *options)

    async def across() -> None:
        async with await own_mariadb.session() as session:
            await session.query("START TRANSACTION")
            await session.query("INSERT INTO opened.t VALUES (1, 2)")
            await trio.to_thread.run_sync(own_mariadb.sql, FULL)
            await trio.to_thread.run_sync(subscriber.start)
            await trio.to_thread.run_sync(subscriber.reading)
            await session.query("COMMIT")

    trio.run(across)
    assert "rows of opened.t were logged before binlog_row_metadata was FULL (or in a transaction" in subscriber.ended()


def test_tables_that_are_not_chosen_may_have_been_anything(
    tmp_path: Path, own_mariadb: MariaDb, server: Server
) -> None:
    own_mariadb.sql("CREATE DATABASE chosen", "CREATE TABLE chosen.t (id INT PRIMARY KEY)")
    own_mariadb.sql("CREATE DATABASE other", "CREATE TABLE other.t (id INT, v TEXT, e ENUM('a'), g POINT, c CHAR(3))")
    subscriber = subscribed(tmp_path, own_mariadb, server, "chosen")
    subscriber.start()
    subscriber.reading()
    metadata(own_mariadb, "NO_LOG")
    own_mariadb.sql("INSERT INTO other.t VALUES (1, 'x', 'a', POINT(1, 2), 'y'), (2, NULL, NULL, NULL, NULL)")
    own_mariadb.sql("DROP TABLE other.t", FULL, "INSERT INTO chosen.t VALUES (1)")
    subscriber.wait_for(place_of(own_mariadb).gtids)
    assert subscriber.stop() == 0
    assert rows(server, "chosen.t") == [{"id": 1}]


ALTERED = {
    "another type": ("a INT", "MODIFY a BIGINT"),
    "another length": ("a VARCHAR(10)", "MODIFY a VARCHAR(20)"),
    "NULL": ("a INT", "MODIFY a INT NOT NULL"),
    "more members": ("a ENUM('x')", "MODIFY a ENUM('x'," + ",".join(f"'{n}'" for n in range(300)) + ")"),
    "more digits": ("a DECIMAL(9,2)", "MODIFY a DECIMAL(9,3)"),
    "a fraction": ("a DATETIME", "MODIFY a DATETIME(3)"),
    "another order": ("a INT, b TEXT", "MODIFY b TEXT FIRST"),
    "one more": ("a INT", "ADD COLUMN b INT"),
    "no sign, MINIMAL": ("a INT", "MODIFY a INT UNSIGNED"),
    "another character set, MINIMAL": ("a TEXT CHARACTER SET latin1", "MODIFY a TEXT CHARACTER SET utf8mb4"),
}


@pytest.fixture(scope="module")
def altered(tmp_path_factory: pytest.TempPathFactory, mariadb: MariaDb, server: Server) -> dict[str, str]:
    """The output of a reader that uses the current columns for rows from before each statement."""
    folder = tmp_path_factory.mktemp("altered")
    found = {}
    for number, (name, (columns, statement)) in enumerate(ALTERED.items()):
        database = f"altered{number}"
        metadata(mariadb, "MINIMAL" if "MINIMAL" in name else "NO_LOG")
        mariadb.sql(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY, {columns})")
        start = ("--start", place_of(mariadb).gtids)
        mariadb.sql(f"INSERT INTO {database}.t (id) VALUES (1)")
        mariadb.sql(f"DELETE FROM {database}.t", f"ALTER TABLE {database}.t {statement}")
        subscriber = subscribed(folder, mariadb, server, database, *ANY, *start)
        subscriber.start()
        found[name] = subscriber.ended()
    metadata(mariadb, "FULL")
    return found


@pytest.mark.parametrize("name", ALTERED)
def test_what_a_table_map_says_is_compared_with_the_columns_of_now(altered: dict[str, str], name: str) -> None:
    told = altered[name]
    assert "was another one than" in told or "had 2 columns, and has 3 now" in told
    assert f"run {FULL} on the server, and start again" in told


CHANGES = [
    "MODIFY b INT FIRST",
    "MODIFY b BIGINT AFTER a",
    "DROP COLUMN b, ADD COLUMN c INT DEFAULT 5",
    "MODIFY e ENUM('z','y','x')",
    "MODIFY s SET('q','p')",
    "MODIFY t VARCHAR(20) CHARACTER SET utf8mb4",
    "MODIFY u INT",
    "CHANGE a renamed INT",
    "ADD COLUMN g POINT FIRST",
    "DROP PRIMARY KEY, ADD PRIMARY KEY (renamed)",
]


def test_a_reader_that_lags_behind_alter_table_gives_each_row_the_columns_it_had(
    tmp_path: Path, mariadb: MariaDb, target: MariaDb, server: Server
) -> None:
    options = ("--tables", "lagging.*", "--topic-per", "database")
    subscriber = Subscriber(tmp_path, mariadb, server.address, "lagging", *options)
    subscriber.start()
    subscriber.reading()
    subscriber.kill()
    columns = "id INT PRIMARY KEY, a INT UNIQUE, b INT, e ENUM('x','y','z'), s SET('p','q'), u INT UNSIGNED"
    mariadb.sql(
        "CREATE DATABASE lagging",
        "USE lagging",
        f"CREATE TABLE t ({columns}, t VARCHAR(20) CHARACTER SET latin1)",
        "INSERT INTO t VALUES (2, 10, 20, 'y', 'q', 7, 'größe')",
    )
    for number, change in enumerate(CHANGES):
        mariadb.sql("USE lagging", f"ALTER TABLE t {change}")
        column = "renamed" if "renamed" in " ".join(CHANGES[: number + 1]) else "a"
        values = f"({100 + number}, {200 + number}, 'x', 'p', 9, 'ÄÖÜ')"
        mariadb.sql("USE lagging", f"INSERT INTO t (id, {column}, e, s, u, t) VALUES {values}")
        mariadb.sql("USE lagging", f"UPDATE t SET {column} = {column} + 1000 WHERE id = 2")
    subscriber.start()
    subscriber.wait_for(place_of(mariadb).gtids)
    assert subscriber.stop() == 0
    first = next(each for each in messages(server.address, "lagging") if each["eventtypestr"] == "insert")
    assert first["field"] == ["2", "10", "20", "'y'", "'q'", "7", "'größe'"]
    applying = Applying(tmp_path, target, server.address, "lagging", "--topic", "lagging", "--ddl")
    applying.to_the_end()
    assert checksums(target, "lagging") == checksums(mariadb, "lagging")
