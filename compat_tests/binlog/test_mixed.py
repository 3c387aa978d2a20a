"""A long mixed load goes into a topic and from it to a second server: in the end both servers have the same rows.

`BARNABAS_MIXED_MINUTES` is the duration of the slow test.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from barnabas.connect.mysql.connection import Connection, LostError
from barnabas.connect.mysql.packets import ServerError
from compat_tests.binlog.applying import Applying, checksums
from compat_tests.binlog.mariadb import MariaDb
from compat_tests.binlog.reading import place_of
from compat_tests.binlog.subscriber import Subscriber
from compat_tests.broker_process import Server

MINUTES = float(os.environ.get("BARNABAS_MIXED_MINUTES", "5"))
TABLES = (
    "CREATE TABLE customers (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(60), "
    "mail VARCHAR(60) CHARACTER SET latin1)",
    "CREATE TABLE orders (id BIGINT PRIMARY KEY AUTO_INCREMENT, customer INT, total DECIMAL(12,2), made DATETIME(6), "
    "state ENUM('new','paid','sent'), FOREIGN KEY (customer) REFERENCES customers (id) ON DELETE CASCADE)",
    "CREATE TABLE events (at TIMESTAMP(3) NULL, what JSON, size FLOAT)",
    "CREATE TABLE blobs (k VARBINARY(16) PRIMARY KEY, v LONGBLOB)",
)
#: The error of a statement with wrong syntax; the other writers may cause any other error.
_WRONG = 1064


def statements(chance: random.Random) -> list[str]:
    """One transaction, or one statement about tables."""
    kind = chance.random()
    number = chance.randrange(1, 500)
    if kind < 0.02:
        column = f"extra{chance.randrange(4)}"
        table = chance.choice(["customers", "events", "blobs"])
        verb = chance.choice([f"ADD COLUMN {column} VARCHAR(20) DEFAULT 'ö'", f"DROP COLUMN {column}"])
        return [f"ALTER TABLE {table} {verb}"]
    if kind < 0.03:
        return ["RENAME TABLE events TO other", "RENAME TABLE other TO events"]
    changes = [
        f"INSERT INTO customers(name, mail) VALUES ('it''s {number}\\\\', 'ä{number}'), ('😀', NULL)",
        f"INSERT INTO orders(customer, total, made, state) SELECT id, id / 7, NOW(6), 1 + id % 3 FROM customers "
        f"WHERE id % 50 = {number % 50} LIMIT 20",
        f"UPDATE orders SET state = 'sent', total = total + {number} WHERE id % 40 = {number % 40}",
        f"DELETE FROM customers WHERE id % 97 = {number % 97} LIMIT 3",
        f"INSERT INTO events(at, what, size) VALUES (NOW(3), '{{\"n\": {number}}}', {number} / 3)",
        f"UPDATE events SET size = size * 1.1 WHERE size < {number} LIMIT 3",
        "DELETE FROM events ORDER BY at LIMIT 2",
        f"INSERT INTO blobs(k, v) VALUES (RANDOM_BYTES(8), RANDOM_BYTES({number * 10}))",
        f"UPDATE blobs SET v = RANDOM_BYTES(20) WHERE HEX(k) LIKE '{number % 10}%' LIMIT 5",
        "DELETE FROM blobs ORDER BY k LIMIT 1",
    ]
    chosen = chance.sample(changes, chance.randrange(1, 6))
    return ["START TRANSACTION", *chosen, "COMMIT" if chance.random() < 0.9 else "ROLLBACK"]


@contextmanager
def load(server: MariaDb, database: str, writers: int) -> Iterator[list[BaseException]]:
    """A block during which writers run; gives the errors that ended writers."""
    stop = threading.Event()
    failed: list[BaseException] = []

    async def write(seed: int) -> None:
        chance = random.Random(seed)
        async with await server.session() as session:
            await session.query(f"USE {database}")
            await session.query("SET NAMES utf8mb4, innodb_lock_wait_timeout = 5")
            while not stop.is_set():
                await transaction(session, statements(chance))

    async def transaction(session: Connection, todo: list[str]) -> None:
        try:
            for statement in todo:
                await session.query(statement)
        except ServerError as error:
            if error.code == _WRONG:
                raise
            await session.query("ROLLBACK")

    def run(seed: int) -> None:
        try:
            trio.run(write, seed)
        except (LostError, ServerError) as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield failed
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failed == []


def mixed(
    tmp_path: Path, mariadb: MariaDb, target: MariaDb, server: Server, database: str, seconds: float, kill_every: float
) -> None:
    mariadb.sql(f"CREATE DATABASE {database}", f"USE {database}", *TABLES)
    options = ("--tables", f"{database}.*", "--topic-per", "database", "--snapshot", "initial")
    subscriber = Subscriber(tmp_path, mariadb, server.address, database, *options)
    applying = Applying(tmp_path, target, server.address, database, "--topic", database, "--ddl")
    chance = random.Random(1)
    with load(mariadb, database, 3) as failed:
        subscriber.start()
        subscriber.reading()
        applying.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert failed == []
            applying.moved()
            threading.Event().wait(min(chance.uniform(0, 2 * kill_every), max(end - time.monotonic(), 0)))
            if chance.random() < 0.5:
                subscriber.kill()
                subscriber.start()
            else:
                applying.kill()
                applying.start()
    subscriber.reading()
    subscriber.wait_for(place_of(mariadb).gtids)
    assert subscriber.stop() == 0
    applying.kill()
    applying.to_the_end()
    expected = checksums(mariadb, database)
    assert len(expected) == 2 * len(TABLES)
    assert checksums(target, database) == expected


@pytest.mark.long
def test_a_mixed_load_for_seconds(tmp_path: Path, mariadb: MariaDb, target: MariaDb, server: Server) -> None:
    mixed(tmp_path, mariadb, target, server, "mixed", 5, 1)


@pytest.mark.slow
@pytest.mark.timeout(MINUTES * 180 + 300)
def test_a_mixed_load_for_minutes(tmp_path: Path, mariadb: MariaDb, target: MariaDb, server: Server) -> None:
    mixed(tmp_path, mariadb, target, server, "mixed_long", MINUTES * 60, 20)
