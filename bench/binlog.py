"""The speed of reading a binary log, and of writing it to topics: `python -m bench.binlog [--rows N] [--source URL]`.

Makes N inserts of narrow rows and as many updates in the database `bench_binlog` of a MariaDB. The server is started on
loopback, unless `--source` names one for the purpose. The changes are then read three times: exactly once into a topic,
with a broker in a process of its own; without a broker, to SQL literals in the `tdsql` format; and with
mysql-replication, if it is installed (`make .venv/.bench`), to its dictionaries. CPU seconds are those of the reading
process, so they are per core. The first reading also prints the longest step of the event loop, in wall-clock time,
which includes the CPU time of other threads and processes.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import trio

from barnabas.connect.binlog.maker import Settings
from barnabas.connect.binlog.reader import Change, Place, Reader
from barnabas.connect.binlog.server import Server
from barnabas.connect.binlog.sink import Sink
from barnabas.connect.binlog.subscribe import Subscription
from barnabas.connect.loop import prepare
from barnabas.connect.mysql.connection import Connection
from barnabas.connect.mysql.source import Source, source_of
from compat_tests.binlog.mariadb import MariaDb, install
from compat_tests.broker_process import Barnabas

ROWS = 200_000
_AT_ONCE = 10_000
_LOOK_SECONDS = 0.02


async def fill(server: Server, connection: Connection, rows: int) -> tuple[Place, Place]:
    """Write the events; returns the positions before and after them."""
    for statement in (
        "DROP DATABASE IF EXISTS bench_binlog",
        "CREATE DATABASE bench_binlog",
        "USE bench_binlog",
        "CREATE TABLE bench_binlog.t (id INT PRIMARY KEY, n BIGINT, name VARCHAR(20), at DATETIME)",
    ):
        await connection.query(statement)
    before = await server.now(connection)
    for first in range(1, rows + 1, _AT_ONCE):
        chosen = f"seq_{first}_to_{min(first + _AT_ONCE - 1, rows)}"
        insert = f"INSERT INTO bench_binlog.t SELECT seq, seq * 7, CONCAT('name ', seq), NOW() FROM {chosen}"
        await connection.query(insert)
    await connection.query("UPDATE bench_binlog.t SET n = n + 1")
    return before, await server.now(connection)


# --- into topics ------------------------------------------------------------------------------------------------------


class Steps(trio.abc.Instrument):
    """The time that each step of a task holds the event loop: wall-clock time, and CPU time of its thread."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.cpu: list[float] = []
        self._began = self._cpu_began = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began, self._cpu_began = time.perf_counter(), time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.seconds.append(time.perf_counter() - self._began)
        self.cpu.append(time.thread_time() - self._cpu_began)

    def told(self) -> str:
        return f"event loop held for {_worst(self.seconds)}; of its own CPU {_worst(self.cpu)}"


def _worst(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    p99, most = ordered[len(ordered) * 99 // 100] * 1000, ordered[-1] * 1000
    return f"{most:.1f} ms at most, {p99:.1f} ms p99"


async def follow(subscription: Subscription, after: Place) -> None:
    """Run until all changes up to a position are in topics."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(subscription.run)
        while subscription.position is None or subscription.position.place.gtids != after.gtids:
            await trio.sleep(_LOOK_SECONDS)
        nursery.cancel_scope.cancel()


def into_topics(source: Source, before: Place, after: Place, rows: int) -> None:
    """Run a subscription to a broker, and print its cost."""
    settings = Settings(name="bench", tables=("bench_binlog.*",), start=before.gtids)
    with tempfile.TemporaryDirectory() as folder, Barnabas(Path(folder)) as broker:
        sink = Sink(broker.address, settings.name, settings.partitions, settings.configs)
        subscription = Subscription(Server(source, 4713), sink, settings, lambda *_, **__: None)
        steps = Steps()
        prepare()
        small = memory("VmRSS")
        cpu, wall = time.process_time(), time.perf_counter()
        trio.run(follow, subscription, after, instruments=[steps])
        told("barnabas, into topics", 2 * rows, time.process_time() - cpu, time.perf_counter() - wall)
        sink.close()
        print(f"{'':26} {steps.told()}")
        print(f"{'':26} resident at most {memory('VmHWM') / 2**20:.0f} MiB, {small / 2**20:.0f} before it began")


def memory(what: str) -> int:
    """Resident bytes of this process, now (VmRSS) or at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{what}:"))


# --- read only --------------------------------------------------------------------------------------------------------


async def ours(server: Server, before: Place, after: Place) -> int:
    """Read row changes and make literals; returns their number."""
    found = 0
    async with await server.open() as connection:
        await server.begin(connection, before)
        reader = Reader(before, server.charsets, mariadb=server.mariadb)
        while not reader.has_reached(after):
            event = await connection.event()
            item = reader.read(event, 1)
            if isinstance(item, Change):
                literals = item.layout.literals
                for images in item.rows:
                    for image in images:
                        literals(image)
                found += len(item.rows)
    return found


def theirs(source: Source, before: Place) -> int:
    """As `ours`, with mysql-replication. Raises ImportError."""
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.row_event import UpdateRowsEvent, WriteRowsEvent

    settings = {"host": source.host, "port": source.port, "user": source.user, "passwd": source.password}
    stream = BinLogStreamReader(
        connection_settings=settings,
        server_id=4711,
        log_file=before.file,
        log_pos=before.position,
        resume_stream=True,
        only_events=[WriteRowsEvent, UpdateRowsEvent],
    )
    found = 0
    for event in stream:
        found += len(event.rows)
    stream.close()
    return found


def told(name: str, rows: int, cpu: float, seconds: float) -> None:
    """Print a line of figures."""
    print(f"{name:26} {rows:>9,} changes  {rows / cpu:>9,.0f} per CPU second  {rows / seconds:>9,.0f} per second")


@contextlib.contextmanager
def sourced(url: str | None) -> Iterator[Source]:
    """The server at `url`, or a new one."""
    if url is not None:
        yield source_of(url)
        return
    with tempfile.TemporaryDirectory() as folder:
        install(installed := Path(folder, "installed"))
        mariadb = MariaDb(Path(folder), installed, innodb_flush_log_at_trx_commit="0")
        mariadb.start()
        try:
            yield mariadb.source()
        finally:
            mariadb.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--source", metavar="URL", help="a MariaDB to spare: mysql://root@127.0.0.1:3306")
    args = parser.parse_args()
    with sourced(args.source) as source:
        server = Server(source, 4712)

        async def filled() -> tuple[Place, Place]:
            async with await server.open() as connection:
                return await fill(server, connection, args.rows)

        before, after = trio.run(filled)
        into_topics(source, before, after, args.rows)
        cpu, wall = time.process_time(), time.perf_counter()
        count = trio.run(ours, server, before, after)
        told("barnabas, read only", count, time.process_time() - cpu, time.perf_counter() - wall)
        cpu, wall = time.process_time(), time.perf_counter()
        try:
            count = theirs(source, before)
        except ImportError:
            print("mysql-replication is not installed: make .venv/.bench")
            return
        told("mysql-replication", count, time.process_time() - cpu, time.perf_counter() - wall)


if __name__ == "__main__":
    main()
