"""The changes in a server's binary log, read without a broker."""

from __future__ import annotations

import trio

from barnabas.connect.binlog.reader import Begin, Change, End, Item, Place, Reader, Statement, TableUnknownError
from barnabas.connect.binlog.server import Server
from compat_tests.binlog.mariadb import MariaDb

SECONDS = 60


def place_of(server: MariaDb) -> Place:
    """The end of the binary log."""

    async def ask() -> Place:
        asked = Server(server.reader(), 4242, any_metadata=True)
        async with await asked.open() as connection:
            return await asked.now(connection)

    return trio.run(ask)


def items(server: MariaDb, place: Place) -> list[Item]:
    """All items from a position to the current end."""
    end = place_of(server)

    async def follow() -> list[Item]:
        asked = Server(server.reader(), 4242, any_metadata=True)
        found: list[Item] = []
        with trio.fail_after(SECONDS):
            async with await asked.open() as connection:
                await asked.begin(connection, place)
                reader = Reader(place, asked.charsets, mariadb=asked.mariadb, exact=asked.exact, any_metadata=True)
                while reader.place.gtids != end.gtids:
                    event = await connection.event()
                    while True:
                        try:
                            item = reader.read(event, 1)
                            break
                        except TableUnknownError as unknown:
                            told = await asked.columns(unknown.database, unknown.name)
                            reader.tell(unknown.database, unknown.name, told)
                    if item is not None:
                        found.append(item)
                    if reader.ends_alone(item):
                        found.append(reader.end_alone(event, 1))
        return found

    return trio.run(follow)


def changes(server: MariaDb, place: Place) -> list[Change]:
    return [item for item in items(server, place) if isinstance(item, Change)]


def shape(found: list[Item]) -> list[str]:
    """The kinds of the items, one word each."""
    names = {Begin: "begin", Statement: "statement", End: "end"}
    kinds = {23: "insert", 24: "update", 25: "delete"}
    return [kinds[item.kind] if isinstance(item, Change) else names[type(item)] for item in found]
