"""Tables that are renamed while they are copied: each is copied once, and followed under its current name."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from barnabas.connect.binlog.naming import Chosen
from barnabas.connect.binlog.selected import SESSION
from barnabas.connect.binlog.server import Server as Source
from barnabas.connect.binlog.snapshot import StaleViewError, kept, tables_of
from barnabas.connect.mysql.connection import Connection
from barnabas.connect.mysql.packets import ServerError
from compat_tests.binlog.applying import Applying, checksums
from compat_tests.binlog.mariadb import MariaDb
from compat_tests.binlog.reading import place_of
from compat_tests.binlog.subscriber import Subscriber
from compat_tests.broker_process import Server
from compat_tests.waiting import until

#: Each has several chunks; one has no primary key, and one no transactions.
TABLES = {
    "b": "id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(500)",
    "d": "id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(500), w INT",
    "f": "id INT, v VARCHAR(500)",
    "h": "id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(500)) ENGINE=MyISAM",
    "j": "id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(500)",
}
NAMES = "abcdefghijk"
NO_SUCH_TABLE = 1146
LOCK_WAIT_TIMEOUT = 1205


@contextmanager
def renaming(server: MariaDb, *statements: str) -> Iterator[None]:
    """A block during which statements run in a loop."""
    stop = threading.Event()

    async def go() -> None:
        async with await server.session() as session:
            while not stop.is_set():
                for statement in statements:
                    await session.query(statement)

    thread = threading.Thread(target=trio.run, args=(go,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_no_table_is_overlooked_while_it_is_renamed(mariadb: MariaDb) -> None:
    mariadb.sql("CREATE DATABASE seen", "CREATE TABLE seen.one (id INT)", "CREATE VIEW seen.v AS SELECT 1")
    chosen = Chosen(["seen.*"])

    async def names(session: Connection) -> tuple[str, ...]:
        try:
            return tuple(table.name for table in await tables_of(session, chosen))
        except StaleViewError:
            return ("stale",)
        except ServerError as error:
            assert error.code == NO_SUCH_TABLE
            return ("stale",)

    async def look(looks: int) -> Counter[tuple[str, ...]]:
        async with await mariadb.session() as session:
            return Counter([await names(session) for _ in range(looks)])

    with renaming(mariadb, "RENAME TABLE seen.one TO seen.two", "RENAME TABLE seen.two TO seen.one"):
        found = trio.run(look, 60)
    assert set(found) <= {("one",), ("two",), ("stale",)}
    assert trio.run(look, 1) == {("one",): 1}


@pytest.mark.parametrize(
    "statement", ["RENAME TABLE held.one TO held.two", "DROP TABLE held.mine", "ALTER TABLE held.one ADD x INT"]
)
def test_no_table_is_renamed_or_changed_while_the_place_of_a_view_is_taken(mariadb: MariaDb, statement: str) -> None:
    """A table renamed away and back would look the same before and after, with the place between the two renames."""
    mariadb.sql(
        "DROP DATABASE IF EXISTS held",
        "CREATE DATABASE held",
        "CREATE TABLE held.one (id INT)",
        "CREATE TABLE held.mine (id INT) ENGINE=MyISAM",
    )

    async def check() -> None:
        source = Source(mariadb.reader(), 4242, any_metadata=True)
        async with await source.open() as session, await mariadb.session() as other:
            tables = await tables_of(session, Chosen(["held.*"]))
            await other.query("SET SESSION lock_wait_timeout = 1")
            async with kept(source, tables):
                await source.snapshot(session)
                with pytest.raises(ServerError) as refused:
                    await other.query(statement)
                assert refused.value.code == LOCK_WAIT_TIMEOUT
                await other.query("INSERT INTO held.one VALUES (1)")
            await other.query(statement)

    trio.run(check)


def change(server: MariaDb, database: str, chance: random.Random) -> None:
    """Rename some tables, swap two, make one, and write to all existing ones."""
    there = {str(row[0]) for row in server.sql(f"SHOW TABLES IN {database}")}
    for _ in range(chance.randrange(1, 5)):
        before, behind = chance.choice(sorted(there)), chance.choice(NAMES)
        if before == behind:
            continue
        if behind in there:
            swap = f"RENAME TABLE {before} TO swapped, {behind} TO {before}, swapped TO {behind}"
            server.sql(f"USE {database}", swap)
        else:
            verb = chance.choice([f"RENAME TABLE {before} TO {behind}", f"ALTER TABLE {before} RENAME TO {behind}"])
            server.sql(f"USE {database}", verb)
            there = there - {before} | {behind}
    free = chance.choice(NAMES)
    if free not in there:
        server.sql(f"CREATE TABLE {database}.{free} (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(500))")
        there.add(free)
    for table in sorted(there):
        low = chance.randrange(2000)
        server.sql(
            f"USE {database}",
            f"INSERT INTO {table}(v) VALUES ('new'), ('newer')",
            f"UPDATE {table} SET v = 'changed' WHERE id BETWEEN {low} AND {low + 200}",
            f"DELETE FROM {table} WHERE id BETWEEN {low + 100} AND {low + 110}",
        )


def renamed(tmp_path: Path, mariadb: MariaDb, target: MariaDb, server: Server, seed: int, *, rows: int) -> bool:
    """Kill a snapshot several times, and rename tables each time; returns whether the snapshot finished."""
    database, chance = f"renamed{seed}", random.Random(seed)
    mariadb.sql(*SESSION, f"CREATE DATABASE {database}", f"USE {database}")
    for table, columns in TABLES.items():
        mariadb.sql(
            f"USE {database}",
            f"CREATE TABLE {table} ({columns}" + ("" if "ENGINE" in columns else ")"),
            f"INSERT INTO {table}(id, v) SELECT seq, REPEAT(seq, 80) FROM seq_1_to_{rows}",
        )
    options = ("--tables", f"{database}.*", "--topic-per", "database", "--snapshot", "initial")
    subscriber = Subscriber(tmp_path, mariadb, server.address, database, *options)
    subscriber.start()
    for _ in range(4):
        before = subscriber.position()

        def is_further(before: object = before) -> bool:
            assert subscriber.process is not None
            return subscriber.process.poll() is not None or subscriber.position() not in (None, before)

        until(is_further, "something is written")
        subscriber.kill()
        change(mariadb, database, chance)
        subscriber.start()
    place = place_of(mariadb).gtids
    try:
        subscriber.reading()
    except AssertionError:
        assert "of which a part was copied: start again" in subscriber.ended()
        return False
    subscriber.wait_for(place)
    assert subscriber.stop() == 0
    applying = Applying(tmp_path, target, server.address, database, "--topic", database, "--ddl")
    applying.to_the_end()
    assert checksums(target, database) == checksums(mariadb, database)
    return True


@pytest.mark.long
def test_a_snapshot_that_is_killed_while_tables_are_renamed(
    tmp_path: Path, mariadb: MariaDb, target: MariaDb, server: Server
) -> None:
    done = [renamed(tmp_path, mariadb, target, server, seed, rows=3000) for seed in range(2)]
    assert any(done)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_forty_snapshots_while_tables_are_renamed(
    tmp_path: Path, mariadb: MariaDb, target: MariaDb, server: Server
) -> None:
    done = [renamed(tmp_path, mariadb, target, server, seed, rows=5000) for seed in range(100, 140)]
    assert sum(done) > len(done) // 2
