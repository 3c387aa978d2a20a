"""Copies the rows that existed before the changes. A killed reader can continue the copy.

    open a view -> read the log up to the view's place -> copy tables from the view, in the order of their names
                                                          and primary keys; a place in that order with each chunk

A view is a transaction of the server that sees one moment, together with that moment's place in the binary log. It is
lost with its connection, and the next view sees a later moment. So first the changes up to that moment are written, for
the rows already copied. Changes of other rows are left out, as the view includes them. Thus each row appears once,
followed by all its later changes, and at the end the log continues from the last view's place.
Source: START TRANSACTION WITH CONSISTENT SNAPSHOT and LOCK TABLES in MariaDB's and MySQL's documentation.
"""

from __future__ import annotations

import contextlib
import re
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

import msgspec
import trio

from barnabas.connect.binlog.maker import CHUNK_BYTES, Chunk, Settings, identity
from barnabas.connect.binlog.masks import Masks
from barnabas.connect.binlog.messages import READ, Format, Group, key_of
from barnabas.connect.binlog.naming import Chosen, Topics
from barnabas.connect.binlog.place import Copied, Position, Table
from barnabas.connect.binlog.reader import Change, Place, Statement
from barnabas.connect.binlog.selected import SESSION, Selected
from barnabas.connect.binlog.server import RefusedError, Server, known_columns
from barnabas.connect.binlog.sink import Out
from barnabas.connect.mysql.connection import Connection, RawRow, name_quoted
from barnabas.connect.mysql.packets import ServerError

#: Rows of one SELECT: few enough that the server has sent them before the client could be too slow.
CHUNK_ROWS = 20_000
#: Rows in one query of a Judge.
_JUDGED = 200
_HOLD_SECONDS = 0.005
_PAUSE_SECONDS = 0.1
#: Server errors: no such table, a table that differs from the view's, another session's statement that takes long or
#: waits for this one.
_STALE = frozenset({1146, 1412, 1205, 1213})
#: How long to wait for other sessions' statements about a table.
_KEEP_SECONDS = 5
_VERSIONED = "SYSTEM VERSIONED"
_TABLES = ("BASE TABLE", _VERSIONED)
_SYSTEM = frozenset({"mysql", "information_schema", "performance_schema", "sys"})
_SAVEPOINT = "barnabas"
COPIED = ("barnabas.snapshot", b"true")


class StaleViewError(Exception):
    """A table was created, altered or dropped while the view was opened or afterwards."""


class Found(NamedTuple):
    """An existing table. `rows` is an estimate; `made` changes with its definition."""

    database: str
    name: str
    transactional: bool
    rows: int
    versioned: bool
    made: int = 0


class Judge:
    """Says which rows are already copied of the table being copied: the server compares their primary keys."""

    def __init__(self, connection: Connection, selected: Selected, after: tuple[str, ...]) -> None:
        self._connection, self._selected, self._after = connection, selected, after

    async def known(self, change: Change) -> list[tuple[bool, ...]]:
        """For each row's images, whether they are copied."""
        layout, selected = change.layout, self._selected
        images = len(change.rows[0]) if change.rows else 1
        conditions = [
            selected.is_behind(selected.place_in(layout, image), self._after) for row in change.rows for image in row
        ]
        told: list[bool] = []
        for at in range(0, len(conditions), _JUDGED):
            (row,) = await self._connection.query(f"SELECT {', '.join(conditions[at : at + _JUDGED])}")
            told += [value == "0" for value in row]
        return [tuple(told[at : at + images]) for at in range(0, len(told), images)]


class View(NamedTuple):
    """One moment of the server; or of one table, which is then `locked`."""

    connection: Connection
    place: Place
    tables: list[Found]
    locked: Found | None


CatchUp = Callable[[Position, Place, Judge | None], Awaitable[Position]]


class Copier:
    """Copies the chosen tables. Raises RefusedError, ServerError, LostError."""

    def __init__(
        self,
        server: Server,
        settings: Settings,
        shape: Format,
        topics: Topics,
        chosen: Chosen,
        masks: Masks,
        catch_up: CatchUp,
        send: trio.MemorySendChannel[Chunk],
    ) -> None:
        self._server, self._settings, self._format = server, settings, shape
        self._topics, self._chosen, self._masks = topics, chosen, masks
        self._catch_up, self._send = catch_up, send
        self._position = self._handed_over = Position(place=Place("", "", 4))
        self._messages: list[Out] = []
        self._size = 0
        self._held = 0.0
        self._names: list[Table] = []
        #: This run's progress: the table, the estimated total of rows, and how many are done.
        self.table, self.total, self.done = "", 0, 0

    async def run(self, position: Position) -> Position:
        """Copy what is left. Returns the position after it, from which the log continues."""
        lock, is_done = None, False
        self._position = self._handed_over = position
        while not is_done:
            try:
                async with self._view(lock) as view:
                    judge = await self._judge(view)
                    self._position = self._handed_over = await self._catch_up(self._position, view.place, judge)
                    lock, is_done = await self._copy_from(view)
            except (StaleViewError, ServerError) as error:
                if isinstance(error, ServerError) and error.code not in _STALE:
                    raise
                lock = None
                await self._begin_again()
        self._position = msgspec.structs.replace(self._position, copied=None)
        await self._flush()
        return self._position

    async def _begin_again(self) -> None:
        """Leave a view whose tables have changed, and continue after the last chunk."""
        self._position, self._messages, self._size = self._handed_over, [], 0
        await trio.sleep(_PAUSE_SECONDS)

    @property
    def _copied(self) -> Copied:
        assert self._position.copied is not None
        return self._position.copied

    # --- views --------------------------------------------------------------------------------------------------------

    async def _judge(self, view: View) -> Judge | None:
        """The judge of which changes up to a view continue the partly copied table."""
        copied = self._copied
        if copied.whole or copied.after is None:
            return None
        known = await known_columns(view.connection, copied.database, copied.table)
        selected = Selected(copied.database, copied.table, known)
        if selected.order != copied.order:  # it was dropped, or its row order changed: its copy starts again
            self._advance()
            return None
        return Judge(view.connection, selected, copied.after)

    @contextlib.asynccontextmanager
    async def _view(self, lock: Found | None) -> AsyncIterator[View]:
        async with await self._server.open() as connection:
            for statement in SESSION:
                await connection.query(statement)
            if lock is not None:
                await connection.query(f"LOCK TABLES {_named(lock)} READ")
                place = await self._server.now(connection)
                if await names_of(connection, self._chosen) != self._names:
                    raise StaleViewError(f"tables were made, renamed or dropped while {_named(lock)} was locked")
                tables = [lock._replace(made=_sum(await _definition(connection, lock)))]
            else:
                self._names = await names_of(connection, self._chosen)
                before = await tables_of(connection, self._chosen)
                async with kept(self._server, before):
                    place = await self._server.snapshot(connection)
                await connection.query(f"SAVEPOINT {_SAVEPOINT}")
                tables = await tables_of(connection, self._chosen)
                if [(table[:2], table.made) for table in tables] != [(table[:2], table.made) for table in before]:
                    raise StaleViewError("tables were made, altered or dropped while the view of their rows was opened")
            yield View(connection, place, tables, lock)

    # --- tables -------------------------------------------------------------------------------------------------------

    async def _copy_from(self, view: View) -> tuple[Found | None, bool]:
        """Copy tables from a view as far as possible. Returns the table to lock next, and whether all is done."""
        if not self.total:
            self.total = sum(table.rows for table in view.tables if not self._copied.has_whole(table[:2]))
        if view.locked is not None:
            if not self._copied.has_whole(view.locked[:2]):
                await self._copy(view, view.tables[0])
            return None, False
        await self._forget_what_is_gone(view)
        for table in sorted(view.tables, key=lambda table: table[:2] in self._copied.left):
            if self._copied.has_whole(table[:2]):
                continue
            if not table.transactional:
                return table, False
            if table.versioned:
                raise RefusedError(
                    f"{table.database}.{table.name} has system versioning, whose history a snapshot would lose: name "
                    "the other tables with --tables"
                )
            await self._copy(view, table)
        return None, True

    async def _forget_what_is_gone(self, view: View) -> None:
        """Void the partial copy of a table without a primary key that was dropped meanwhile."""
        copied = self._copied
        if not copied.begun or copied.whole or copied.after is not None:
            return
        if all(table[:2] != (copied.database, copied.table) for table in view.tables):
            self._group = self._group_of(view)
            self._empty(copied.database, copied.table)
            self._advance(whole=True)
            await self._flush()

    def _group_of(self, view: View) -> Group:
        source, place = self._server.source, view.place
        now = int(time.time())
        return Group(place.gtids, now, source.host, source.port, self._settings.name, place.file, place.position)

    async def _copy(self, view: View, table: Found) -> None:
        connection = view.connection
        self._group = self._group_of(view)
        self.table = f"{table.database}.{table.name}"
        await connection.query(f"SELECT 1 FROM {_named(table)} LIMIT 0")  # from now on it cannot be altered
        definition = await _definition(connection, table)
        if _sum(definition) != table.made:  # the view's rows have another definition
            raise StaleViewError(f"{self.table} was altered after the view of its rows was opened")
        known = await known_columns(connection, table.database, table.name)
        selected = Selected(table.database, table.name, known)
        await self._begin(connection, table, selected, definition)
        layout, shown = self._masks.masked(selected.layout)
        change = Change(READ, layout, [], self._group.timestamp)
        message = self._format.change(self._group, change)
        topic = self._topics.of(table.database, table.name)
        self._held = time.perf_counter()
        while True:
            after = self._copied.after
            rows = 0
            raw: RawRow = ()
            async for raw in connection.raw_rows(selected.sql(after, CHUNK_ROWS)):
                rows += 1
                row = selected.row(raw)
                seen = shown(row)
                self._add(topic, key_of(layout, seen), message((seen,), self._next()))
                if self._size >= CHUNK_BYTES:
                    self._advance(after=tuple(selected.place(raw)) or None)
                    await self._flush()
                elif time.perf_counter() - self._held > _HOLD_SECONDS:
                    await trio.lowlevel.checkpoint()
                    self._held = time.perf_counter()
            self.done += rows
            if rows < CHUNK_ROWS or not selected.has_key:
                break
            self._advance(after=tuple(selected.place(raw)))
        self._mark(topic, self._format.copying(self._group, self._next(), *table[:2], done=True))
        self._advance(whole=True)
        await self._flush()
        if view.locked is None:  # so that the table can be altered again
            await connection.query(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")

    async def _begin(self, connection: Connection, table: Found, selected: Selected, definition: str) -> None:
        """Continue a table's copy, or start it, or start it again if its progress is unknown."""
        copied, (database, name) = self._copied, table[:2]
        again = (copied.database, copied.table) == (database, name) and copied.begun
        if again and copied.after is not None and copied.order == selected.order:
            return
        fresh = copied.beginning((database, name), selected.order)
        self._position = msgspec.structs.replace(self._position, copied=fresh)
        if again:
            self._empty(database, name)
        statements = self._topics.statements(database)
        if statements is not None:
            (of,) = await connection.query(f"SHOW CREATE DATABASE IF NOT EXISTS {name_quoted(database)}")
            for sql in (of[1] or "", definition):
                self._statement(statements, database, sql)
        topic = self._topics.of(database, name)
        self._mark(topic, self._format.copying(self._group, self._next(), database, name, done=False))

    def _empty(self, database: str, name: str) -> None:
        """Write a message that voids a table's copy in its topic."""
        statements = self._topics.statements(database)
        if statements is not None:
            self._statement(statements, database, f"DROP TABLE IF EXISTS {name_quoted(name)}")
        else:
            value = self._format.emptied(self._group, self._next(), database, name)
            self._mark(self._topics.of(database, name), value)

    # --- messages -----------------------------------------------------------------------------------------------------

    def _next(self) -> int:
        """The number of the next message."""
        return self._copied.messages + len(self._messages) + 1

    def _statement(self, topic: str, database: str, sql: str) -> None:
        statement = Statement(database, sql, self._group.timestamp)
        self._add(topic, None, self._format.statement(self._group, self._next(), statement))

    def _mark(self, topic: str, value: bytes | None) -> None:
        if value is not None:
            self._add(topic, None, value)

    def _add(self, topic: str, key: bytes | None, value: bytes) -> None:
        headers = (*identity(self._settings.name, self._group.gtid, self._next()), COPIED)
        self._messages.append(Out(topic, key, value, headers, self._group.timestamp * 1000))
        self._size += len(value) + len(key or b"") + 100

    def _advance(self, *, after: tuple[str, ...] | None = None, whole: bool = False) -> None:
        copied = msgspec.structs.replace(self._copied, after=after, whole=whole)
        self._position = msgspec.structs.replace(self._position, copied=copied)

    async def _flush(self) -> None:
        """Hand over a chunk with its end position."""
        copied = self._position.copied
        count = len(self._messages)
        if copied is not None:
            copied = msgspec.structs.replace(copied, messages=copied.messages + count)
        self._position = msgspec.structs.replace(
            self._position, copied=copied, messages=self._position.messages + count
        )
        chunk = Chunk(self._messages, self._position)
        self._messages, self._size = [], 0
        await self._send.send(chunk)
        self._handed_over = self._position


@contextlib.asynccontextmanager
async def kept(server: Server, tables: list[Found]) -> AsyncIterator[None]:
    """Inside this block no table is renamed, altered or dropped. Raises ServerError.

    A table that is renamed and then renamed back looks the same before and after it. If the place of a view lay between
    the two, the log would go on with a table that the view does not have. Statements of other sessions wait, as they do
    for any reader of the tables. On MySQL the view's place is taken under a lock of all tables, which would wait for
    such a statement, so there nothing is kept.
    """
    if not server.mariadb:
        yield
        return
    async with await server.open() as connection:
        await connection.query(f"SET SESSION lock_wait_timeout = {_KEEP_SECONDS}")
        await connection.query("START TRANSACTION READ ONLY")
        for table in tables:
            await connection.query(f"SELECT 1 FROM {_named(table)} LIMIT 0")
        yield
        await connection.query("ROLLBACK")


async def names_of(connection: Connection, chosen: Chosen) -> list[Table]:
    """The names of the chosen tables and views, in order. This does not wait for other sessions' statements."""
    rows = await connection.query("SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES")
    names = [(database or "", name or "") for database, name in rows]
    return sorted(table for table in names if table[0] not in _SYSTEM and chosen.has(*table))


async def tables_of(connection: Connection, chosen: Chosen) -> list[Found]:
    """The chosen tables, in the order of their names. Raises StaleViewError if some are being renamed.

    A query for more than names waits for a statement that renames a table, and then leaves the table out: its old name
    no longer exists, and its new one did not exist when the names were read.
    """
    names = await names_of(connection, chosen)
    rows = await connection.query(
        "SELECT t.TABLE_SCHEMA, t.TABLE_NAME, e.TRANSACTIONS, t.TABLE_ROWS, t.TABLE_TYPE "
        "FROM information_schema.TABLES t LEFT JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE"
    )
    found = {row[:2]: row[2:] for row in rows}
    tables = []
    for database, name in names:
        if (database, name) not in found:
            raise StaleViewError(f"{database}.{name} is being renamed or dropped")
        transactional, about, kind = found[database, name]
        if kind in _TABLES:
            table = Found(database, name, transactional == "YES", int(about or 0), kind == _VERSIONED)
            tables.append(table._replace(made=_sum(await _definition(connection, table))))
    return tables


def _named(table: Found) -> str:
    return f"{name_quoted(table.database)}.{name_quoted(table.name)}"


async def _definition(connection: Connection, table: Found) -> str:
    ((_, made),) = await connection.query(f"SHOW CREATE TABLE {_named(table)}")
    return made or ""


def _sum(definition: str) -> int:
    """A number that changes with the definition. Inserts change the counter in it, so this is left out."""
    return zlib.crc32(re.sub(r"\bAUTO_INCREMENT=\d+ ?", "", definition).encode("utf-8", "surrogateescape"))
