"""A subscription: the server's binary log -> changes -> messages -> topics, exactly once.

    reader task: events -> chunks of messages, each with the position after it   -> a channel of few chunks
    writer task: a chunk -> one Kafka transaction with messages and position     -> the next chunk

An attempt goes on until something fails. Then all of it begins anew where the topics say that they are: the new
transaction of the same id fences what is left of the old one. What trying again does not mend ends the subscription.
Memory is bounded by the chunks, whatever the size of a transaction; the server waits when the topics do.
"""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Callable

import msgspec
import trio

from barnabas.client.errors import ClientError
from barnabas.connect.binlog.events import EventError
from barnabas.connect.binlog.messages import Format, Group, format_of, key_of
from barnabas.connect.binlog.naming import Chosen, NameClashError, Topics
from barnabas.connect.binlog.place import Position
from barnabas.connect.binlog.reader import Begin, Change, End, Item, Place, Reader, Statement, TableUnknownError
from barnabas.connect.binlog.server import SILENCE_SECONDS, RefusedError, Server, is_final
from barnabas.connect.binlog.sink import OtherReaderError, Out, Sink, TooLargeError
from barnabas.connect.mysql.connection import Connection, LostError
from barnabas.connect.mysql.handshake import AuthError
from barnabas.connect.mysql.packets import ProtocolError, ServerError

CHUNK_BYTES, CHUNK_SECONDS, CHUNKS = 1 << 20, 0.05, 3
#: The event loop is given back after so long.
_HOLD_SECONDS = 0.005
_IDLE_SECONDS = 10.0
_FIRST_BACKOFF, _MOST_BACKOFF = 0.5, 30.0
_ACCOUNTS = ("user", "role", "password")
_ACCOUNT_VERBS = frozenset({"grant", "revoke"})
Say = Callable[..., None]


class FinalError(Exception):
    """The subscription cannot go on; the message says why, where, and what helps."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscription is. `start`: `now`, `oldest`, or a GTID position of MariaDB, for a new one."""

    name: str
    format: str = "tdsql"
    per: str = "table"
    prefix: str = ""
    tables: tuple[str, ...] = ()
    start: str = "now"
    partitions: int = 1
    configs: dict[str, str] = {}


class Chunk(msgspec.Struct):
    """Messages, and the position after them."""

    messages: list[Out]
    position: Position


class Subscription:
    """`run` goes on until cancelled, or raises FinalError. `say(level, event, **fields)` is for the operator."""

    def __init__(self, server: Server, sink: Sink, settings: Settings, say: Say) -> None:
        self._server, self._sink, self._settings, self._say = server, sink, settings, say
        self._format: Format = format_of(settings.format)
        self._topics = Topics(settings.per, settings.prefix)
        self._chosen = Chosen(settings.tables)
        #: The last position that is written.
        self.position: Position | None = None

    async def run(self) -> None:
        failures = 0
        while True:
            began = trio.current_time()
            try:
                await self._attempt()
            except (RefusedError, AuthError, TooLargeError, OtherReaderError, NameClashError, EventError) as error:
                raise FinalError(str(error)) from None
            except ServerError as error:
                if is_final(error):
                    raise FinalError(f"{self._server.source} refuses: {error}{_remedy(error)}") from None
                reason = str(error)
            except (LostError, ProtocolError, ClientError) as error:
                reason = str(error)
            failures = 1 if trio.current_time() - began > _MOST_BACKOFF else failures + 1
            wait = min(_FIRST_BACKOFF * 2 ** min(failures - 1, 8), _MOST_BACKOFF) * random.uniform(0.5, 1)
            self._say("warning", "binlog.retrying", name=self._settings.name, error=reason, seconds=round(wait, 1))
            await trio.sleep(wait)

    async def _attempt(self) -> None:
        found = await trio.to_thread.run_sync(self._sink.begin)
        connection = await self._server.open()
        try:
            position = await self._first(connection) if found is None else found
            if found is None:
                await trio.to_thread.run_sync(self._sink.write, [], position)
            elif position.file:
                warning = await self._server.check_history(position.file, position.start, position.fingerprint)
                if warning is not None:
                    self._say("warning", "binlog.history.unknown", name=self._settings.name, reason=warning)
            self.position = position
            await self._server.begin(connection, position.place)
            self._say("info", "binlog.reading", name=self._settings.name, place=_told(position.place))
            send, receive = trio.open_memory_channel[Chunk](CHUNKS)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, receive)
                    await self._read(connection, position, send)
            except BaseExceptionGroup as group:
                raise _only(group) from None
        finally:
            with trio.CancelScope(shield=True):
                await connection.close()

    async def _first(self, connection: Connection) -> Position:
        """Where a new subscription begins."""
        start = self._settings.start
        if start == "now":
            place = await self._server.now(connection)
        elif start == "oldest":
            place = await self._server.oldest(connection)
        else:
            place = Place(start, "", 4)
        return Position(place=place, source=str(self._server.source))

    # --- writing ------------------------------------------------------------------------------------------------------

    async def _write(self, chunks: trio.MemoryReceiveChannel[Chunk]) -> None:
        async for chunk in chunks:
            await trio.to_thread.run_sync(self._sink.write, chunk.messages, chunk.position)
            self.position = chunk.position

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _read(self, connection: Connection, position: Position, send: trio.MemorySendChannel[Chunk]) -> None:
        reader = Reader(position.place, self._server.charsets, mariadb=self._server.mariadb)
        maker = _Maker(self._server, self._settings, self._format, self._topics, self._chosen, position)
        held = time.perf_counter()
        while True:
            if not connection.is_drained:
                event = connection.buffered_event()
            else:
                waited = await self._wait(connection, maker)
                if waited is None:
                    await send.send(maker.chunk())
                    continue
                event = waited
            await self._take(reader, maker, event)
            if maker.size >= CHUNK_BYTES:
                await send.send(maker.chunk())
                held = time.perf_counter()
            elif time.perf_counter() - held > _HOLD_SECONDS:
                await trio.lowlevel.checkpoint()
                held = time.perf_counter()

    async def _wait(self, connection: Connection, maker: _Maker) -> bytes | None:
        """The next event; None if what there is is to be written first. Raises LostError."""
        wait = maker.wait(trio.current_time())
        if wait <= 0:
            return None
        with trio.move_on_after(min(wait, SILENCE_SECONDS)):
            return await connection.event()
        if wait > SILENCE_SECONDS:
            raise LostError(f"{self._server.source} has been silent for {SILENCE_SECONDS} s")
        return None

    async def _take(self, reader: Reader, maker: _Maker, event: bytes) -> None:
        while True:
            try:
                item = reader.read(event, 1)
                break
            except TableUnknownError as unknown:
                columns = await self._server.columns(unknown.database, unknown.name)
                reader.tell(unknown.database, unknown.name, columns)
        if item is None:
            return
        maker.take(item)
        if isinstance(item, Statement):
            reader.forget()
            if reader.ends_alone(item):
                maker.take(reader.end_alone(event, 1))


class _Maker:
    """Gathers the messages of items, and knows the position after them."""

    def __init__(
        self, server: Server, settings: Settings, shape: Format, topics: Topics, chosen: Chosen, position: Position
    ) -> None:
        self._server, self._settings, self._format = server, settings, shape
        self._topics, self._chosen = topics, chosen
        self._position = position
        self._done = position.index if position.group else 0
        self._messages: list[Out] = []
        self._group: Group | None = None
        self._begin: Begin | None = None
        self._index = 0
        self._made = position.made
        self._place = position.place
        self._moved = False
        self._since = 0.0
        self._idle_since = trio.current_time()
        self.size = 0

    # --- chunks -------------------------------------------------------------------------------------------------------

    def wait(self, now: float) -> float:
        """How long the next event may be waited for."""
        if self._messages:
            return max(self._since + CHUNK_SECONDS - now, 0)
        if self._moved:
            return max(self._idle_since + _IDLE_SECONDS - now, 0)
        return float("inf")

    def chunk(self) -> Chunk:
        """What was gathered, and the position after it."""
        begin, position = self._begin, self._position
        self._position = msgspec.structs.replace(
            position,
            place=self._place,
            group=begin.gtid if begin is not None else "",
            index=self._index if begin is not None else 0,
            made=self._made,
            messages=position.messages + len(self._messages),
        )
        found = Chunk(self._messages, self._position)
        self._messages, self.size, self._moved = [], 0, False
        self._idle_since = trio.current_time()
        return found

    def _add(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        group = self._group
        assert group is not None
        if not self._messages:
            self._since = trio.current_time()
        headers = (
            ("barnabas.source", self._settings.name.encode()),
            ("barnabas.gtid", group.gtid.encode()),
            ("barnabas.index", b"%d" % self._index),
        )
        self._messages.append(Out(topic, key, value, headers, group.timestamp * 1000))
        self.size += len(value or b"") + len(key or b"") + 100

    # --- items --------------------------------------------------------------------------------------------------------

    def take(self, item: Item) -> None:
        """The messages of an item. Each has a number in its group, from 1, whether it is chosen or not."""
        if isinstance(item, Change):
            self._change(item)
        elif isinstance(item, Begin):
            self._start(item)
        elif isinstance(item, End):
            self._end(item)
        else:
            self._statement(item)

    def _next(self) -> bool:
        """Count a message; whether it is still to be written."""
        self._index += 1
        return self._index > self._done

    def _start(self, begin: Begin) -> None:
        if self._done and begin.gtid != self._position.group:
            raise RefusedError(
                f"the binary log goes on with {begin.gtid} where {self._position.group} was begun: its history is "
                "another one, so begin anew with --start now, or a new name (--name)"
            )
        source = self._server.source
        self._begin, self._index, self._made = begin, 0, begin.timestamp
        file = begin.before.file
        self._group = Group(
            begin.gtid, begin.timestamp, source.host, source.port, self._settings.name, file, begin.start
        )
        self._position = msgspec.structs.replace(
            self._position, file=file, start=begin.start, fingerprint=begin.fingerprint
        )
        if self._format.frames and self._next() and (topic := self._topics.frames):
            value = self._format.begin(self._group, self._index)
            if value is not None:
                self._add(topic, None, value)

    def _end(self, end: End) -> None:
        assert self._group is not None
        if self._format.frames and self._next() and (topic := self._topics.frames):
            value = self._format.end(self._group, self._index, end.xid)
            if value is not None:
                self._add(topic, None, value)
        self._begin, self._group = None, None
        self._place, self._made, self._done = end.after, end.timestamp, 0
        self._moved = True

    def _statement(self, statement: Statement) -> None:
        assert self._group is not None
        if not self._next() or _is_about_accounts(statement.sql) or not self._chosen.has_database(statement.database):
            return
        topic = self._topics.statements(statement.database)
        if topic is not None:
            self._add(topic, None, self._format.statement(self._group, self._index, statement))

    def _change(self, change: Change) -> None:
        layout = change.layout
        assert self._group is not None
        if not self._chosen.has(layout.database, layout.table):
            self._index += len(change.rows)
            return
        topic = self._topics.of(layout.database, layout.table)
        message = self._format.change(self._group, change)
        single = self._settings.per == "server" and self._settings.partitions == 1
        for images in change.rows:
            if self._next():
                key = None if single and not layout.key else key_of(layout, images[-1])
                self._add(topic, key, message(images, self._index))


def _is_about_accounts(sql: str) -> bool:
    """Statements about users have passwords in them: no subscriber reads these."""
    words = sql.lower().split(None, 4)
    if not words:
        return False
    return words[0] in _ACCOUNT_VERBS or (
        words[0] in ("create", "alter", "drop", "rename", "set") and any(word in _ACCOUNTS for word in words[1:4])
    )


def _told(place: Place) -> str:
    return place.gtids or f"{place.file}:{place.position}"


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What failed first: both tasks are cancelled then."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = next((e for e in found.exceptions if not isinstance(e, trio.Cancelled)), found.exceptions[0])
    return found


def _remedy(error: ServerError) -> str:
    """What helps against an error of the server that stays."""
    if error.code in (1045, 1698):
        return ": set the password in the environment variable MYSQL_PWD, and name the right user"
    if error.code in (1044, 1142, 1143, 1227):
        return ": GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO the user"
    if error.code == 1236:
        return ": what was to be read next is not there; begin anew with --start now, or a new name (--name)"
    if error.code in (4052, 4151):
        return ": another replica has the same server id; give another one with --server-id"
    if error.code == 1941:
        return ": --start is `now`, `oldest`, or a position such as 0-1-42"
    return ""


def server_id_of(name: str) -> int:
    """A server id for a subscription: replicas of one server need different ones."""
    return 1_000_000_000 + zlib.crc32(name.encode()) % 1_000_000_000
