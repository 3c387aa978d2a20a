"""A snapshot, then the log: a consumer that replays them has the server's rows, whoever writes or dies meanwhile."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from barnabas.connect.binlog.selected import SESSION, Selected
from barnabas.connect.binlog.server import Server as Backend
from barnabas.connect.binlog.server import known_columns
from barnabas.connect.mysql.connection import LostError
from barnabas.connect.mysql.packets import ServerError
from compat_tests.binlog.mariadb import MariaDb
from compat_tests.binlog.reading import place_of
from compat_tests.binlog.replaying import replayed, rows_of
from compat_tests.binlog.subscriber import Subscriber, messages
from compat_tests.broker_process import Server
from compat_tests.waiting import until

#: A table for each way of ordering rows and finding them again.
TABLES = {
    "a_number": "id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(200)",
    "b_texts": "v VARCHAR(200), k ENUM('z','a','m'), t VARCHAR(30) COLLATE utf8mb4_general_ci, PRIMARY KEY (k, t)",
    "c_parts": "f FLOAT, d DATETIME(3), u UUID, v VARCHAR(200), b BIT(7), PRIMARY KEY (b, f, u, d)",
    "d_nokey": "v VARCHAR(200), n INT",
    "e_made": "id INT PRIMARY KEY, v VARCHAR(200), g INT AS (id * 2) VIRTUAL, s INT AS (id+1) STORED, h INT INVISIBLE",
    "f_old": "id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(200)) ENGINE=MyISAM",
    "g_last": "id BIGINT UNSIGNED PRIMARY KEY, v VARCHAR(200)",
}


def fill(server: MariaDb, database: str, rows: int) -> None:
    text = "REPEAT(CONCAT('it''s ', seq), 10)"
    made = [f"CREATE DATABASE {database}", f"USE {database}"]
    for table, columns in TABLES.items():
        made.append(f"CREATE TABLE {table} ({columns}" + (")" if "ENGINE" not in columns else ""))
    server.sql(
        *made,
        f"INSERT INTO a_number(v) SELECT {text} FROM seq_1_to_{rows}",
        f"INSERT INTO b_texts SELECT {text}, 1 + seq % 3, CONCAT(CHAR(97 + seq % 26), '\\'', seq) FROM seq_1_to_{rows}",
        f"INSERT INTO c_parts SELECT seq / 7, '2024-01-01' + INTERVAL seq SECOND, UUID(), {text}, seq % 100 "
        f"FROM seq_1_to_{rows}",
        f"INSERT INTO d_nokey SELECT {text}, seq % 10 FROM seq_1_to_{rows}",
        f"INSERT INTO e_made(id, v, h) SELECT seq, {text}, 5 FROM seq_1_to_{rows}",
        f"INSERT INTO f_old(v) SELECT {text} FROM seq_1_to_{rows // 10}",
        f"INSERT INTO g_last SELECT 18446744073709551615 - seq, {text} FROM seq_1_to_{rows}",
        "CREATE VIEW view_of AS SELECT * FROM a_number",
    )


@contextmanager
def writers(server: MariaDb, database: str, seed: int) -> Iterator[None]:
    """A block during which writers change rows of all tables."""
    stop = threading.Event()
    failed: list[BaseException] = []

    async def write(chance: random.Random) -> None:
        async with await server.session() as session:
            await session.query(f"USE {database}")
            while not stop.is_set():
                table = chance.choice(list(TABLES))
                low = chance.randrange(1000)
                where = {"b_texts": "t LIKE CONCAT('%', {})", "c_parts": "b = {} % 100", "d_nokey": "n = {} % 10"}
                found = where.get(table, "id % 1000 = {}").format(low)
                await session.query(f"UPDATE {table} SET v = 'changed {low}' WHERE {found} LIMIT 20")
                await session.query(f"DELETE FROM {table} WHERE {found} LIMIT 2")
                await session.query(f"INSERT INTO a_number(v) VALUES ('new {low}')")
                await session.query(f"UPDATE a_number SET id = -id WHERE id = {low}")

    def run() -> None:
        try:
            trio.run(write, random.Random(seed))
        except (LostError, ServerError) as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert failed == []


def compare(server: MariaDb, broker: str, database: str) -> None:
    """Check that the replayed topics of the tables have the tables' rows."""
    for table in TABLES:
        found = replayed(messages(broker, f"{database}.{table}")).get(table, Counter())
        assert found == rows_of(server, database, table), table


def test_a_snapshot_while_rows_change(tmp_path: Path, mariadb: MariaDb, server: Server) -> None:
    fill(mariadb, "calm", 3000)
    options = ("--tables", "calm.*", "--snapshot", "initial")
    subscriber = Subscriber(tmp_path, mariadb, server.address, "calm", *options)
    with writers(mariadb, "calm", 1):
        subscriber.start()
        subscriber.reading()
    subscriber.wait_for(place_of(mariadb).gtids)
    assert subscriber.stop() == 0
    compare(mariadb, server.address, "calm")
    position = subscriber.position()
    assert position is not None
    assert position.copied is None


def crash(tmp_path: Path, mariadb: MariaDb, server: Server, database: str, *, rows: int, kills: int, seed: int) -> None:
    fill(mariadb, database, rows)
    options = ("--tables", f"{database}.*", "--snapshot", "initial")
    subscriber = Subscriber(tmp_path, mariadb, server.address, database, *options)
    chance = random.Random(seed)
    with writers(mariadb, database, seed):
        subscriber.start()
        for _ in range(kills):
            before = subscriber.position()
            until(lambda: subscriber.position() not in (None, before), "something is written")  # noqa: B023
            threading.Event().wait(chance.uniform(0, 0.2))  # the moment of the kill is random
            subscriber.kill()
            subscriber.start()
        subscriber.reading()
    subscriber.wait_for(place_of(mariadb).gtids)
    assert subscriber.stop() == 0
    compare(mariadb, server.address, database)
    found = [each for each in messages(server.address, f"{database}.g_last") if each["eventtypestr"] == "insert"]
    assert len({each["field"][0] for each in found}) == len(found)


@pytest.mark.long
def test_a_snapshot_that_is_killed_has_each_row_once(tmp_path: Path, mariadb: MariaDb, server: Server) -> None:
    crash(tmp_path, mariadb, server, "killed", rows=10_000, kills=4, seed=2)


KEYS = [
    "INT",
    "BIGINT UNSIGNED",
    "DECIMAL(10,3)",
    "FLOAT",
    "DOUBLE",
    "BIT(10)",
    "YEAR",
    "DATE",
    "TIME(3)",
    "DATETIME(2)",
    "TIMESTAMP",
    "VARCHAR(40)",
    "VARCHAR(40) COLLATE utf8mb4_bin",
    "CHAR(10) CHARACTER SET latin1",
    "VARCHAR(40) CHARACTER SET utf16 COLLATE utf16_general_ci",
    "VARBINARY(20)",
    "BINARY(4)",
    "ENUM('z','b','m')",
    "SET('z','b','m')",
    "ENUM('z','😀','😁')",
    "UUID",
    "INET6",
    "INET4",
]
VALUES = {
    "BIT": ["b'1'", "b'1000000000'", "0"],
    "YEAR": ["1901", "2155", "0"],
    "DATE": ["'0000-00-00'", "'2024-02-29'", "'1999-12-31'"],
    "DATETIME": ["'0000-00-00'", "'2024-02-29 01:02:03.45'", "'1999-12-31 23:59:59'"],
    "TIMESTAMP": ["'2024-02-29 01:02:03'", "'1999-12-31 23:59:59'"],
    "TIME": ["'-01:00:00.5'", "'838:59:59'", "'-838:59:59'", "'00:00:01.001'"],
    "VARCHAR": ["'a'", "'B'", "'ä'", "'it''s'", "''", "'ab'", "'a\\\\'", "'_'"],
    "CHAR": ["'a'", "'B'", "'ä'", "'€'", "''"],
    "VARBINARY": ["x'00'", "x'0000'", "x''", "x'ff27'", "'a'"],
    "BINARY": ["x'00'", "x'0001'", "x'ff27'", "'a'"],
    "ENUM": ["'z'", "'b'", "'m'", "0"],
    "SET": ["'z'", "'b,z'", "'m'", "''"],
    "UUID": ["'123e4567-e89b-12d3-a456-426655440000'", "'023e4567-e89b-12d3-b456-426655440000'", "UUID()"],
    "INET6": ["'::1'", "'2001:db8::1'", "'::'"],
    "INET4": ["'10.0.0.1'", "'9.255.255.255'"],
}


@pytest.mark.parametrize("kind", KEYS)
def test_the_server_tells_what_is_behind_a_row(mariadb: MariaDb, kind: str) -> None:
    """A copy can continue after any row, and no row is on both sides, for every kind of primary key."""
    values = VALUES.get(kind.partition("(")[0].partition(" ")[0], ["0", "1", "1.25", "7", "1.1", "10000"])
    mariadb.sql(
        *SESSION,
        "CREATE DATABASE IF NOT EXISTS behind",
        "USE behind",
        "DROP TABLE IF EXISTS t",
        f"CREATE TABLE t (k {kind}, n INT, PRIMARY KEY (n, k))",
        *(f"INSERT IGNORE INTO t VALUES ({value}, {number})" for value in values for number in (1, 2)),
    )

    async def ask() -> None:
        asked = Backend(mariadb.reader(), 4242)
        async with await asked.open() as connection:
            for statement in SESSION:
                await connection.query(statement)
            table = Selected("behind", "t", await known_columns(connection, "behind", "t"))
            places = [table.place(raw) async for raw in connection.raw_rows(table.sql(None, 100))]
            assert len(places) >= 2 * len(values) - 4
            for number, place in enumerate(places):
                left = [table.place(raw) async for raw in connection.raw_rows(table.sql(place, 100))]
                assert left == places[number + 1 :]
                (told,) = await connection.query("SELECT " + ", ".join(table.is_behind(each, place) for each in places))
                assert told == tuple("1" if other > number else "0" for other in range(len(places)))

    trio.run(ask)


@pytest.mark.parametrize("shape", ["debezium", "maxwell"])
def test_other_formats_mark_the_rows_of_a_snapshot(
    tmp_path: Path, mariadb: MariaDb, server: Server, shape: str
) -> None:
    name = f"marked_{shape}"
    mariadb.sql(
        f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t (id INT PRIMARY KEY)", f"INSERT INTO {name}.t VALUES (1)"
    )
    options = ("--tables", f"{name}.*", "--snapshot", "initial", "--format", shape)
    subscriber = Subscriber(tmp_path, mariadb, server.address, name, *options)
    subscriber.start()
    subscriber.reading()
    mariadb.sql(f"INSERT INTO {name}.t VALUES (2)")
    subscriber.wait_for(place_of(mariadb).gtids)
    assert subscriber.stop() == 0
    found = messages(server.address, f"{name}.t")
    if shape == "debezium":
        told = [(each["op"], each["source"]["snapshot"], each["after"]["id"]) for each in found]
        assert told == [("r", "true", 1), ("c", "false", 2)]
    else:
        assert [(each["type"], each["data"]) for each in found] == [
            ("bootstrap-start", {}),
            ("bootstrap-insert", {"id": 1}),
            ("bootstrap-complete", {}),
            ("insert", {"id": 2}),
        ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_twenty_kills_in_a_snapshot(tmp_path: Path, mariadb: MariaDb, server: Server, seed: int) -> None:
    crash(tmp_path, mariadb, server, f"often{seed}", rows=50_000, kills=20, seed=seed)
