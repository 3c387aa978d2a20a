"""How fast a binary log is read: `python -m bench.binlog mysql://root@127.0.0.1:3306 [ROWS]`, on a server to spare.

Makes ROWS inserts of narrow rows and as many updates in the database `bench_binlog`, then reads these events: here, to
SQL literals as the `tdsql` format has them; and with mysql-replication (`pip install mysql-replication`), if it is
installed, to its dictionaries. CPU seconds are of the reading process, so they are per core.
"""

from __future__ import annotations

import sys
import time

import trio

from barnabas.connect.binlog.reader import Change, Place, Reader
from barnabas.connect.binlog.server import Server
from barnabas.connect.mysql.connection import Connection
from barnabas.connect.mysql.source import Source, source_of

ROWS = 200_000
_AT_ONCE = 10_000


async def fill(server: Server, connection: Connection, rows: int) -> tuple[Place, Place]:
    """The events; the places before and after them."""
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


async def ours(server: Server, before: Place, after: Place) -> int:
    """Row changes that were read and made literals."""
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


def theirs(source: Source, before: Place, after: Place) -> int:
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
    """A line of figures."""
    print(f"{name:20} {rows:>9,} changes  {rows / cpu:>9,.0f} per CPU second  {rows / seconds:>9,.0f} per second")


def main() -> int:
    source = source_of(sys.argv[1])
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else ROWS
    server = Server(source, 4712)

    async def prepare() -> tuple[Place, Place]:
        async with await server.open() as connection:
            return await fill(server, connection, rows)

    before, after = trio.run(prepare)
    cpu, wall = time.process_time(), time.perf_counter()
    count = trio.run(ours, server, before, after)
    told("barnabas", count, time.process_time() - cpu, time.perf_counter() - wall)
    cpu, wall = time.process_time(), time.perf_counter()
    try:
        count = theirs(source, before, after)
    except ImportError:
        print("mysql-replication is not installed")
        return 0
    told("mysql-replication", count, time.process_time() - cpu, time.perf_counter() - wall)
    return 0


if __name__ == "__main__":
    sys.exit(main())
