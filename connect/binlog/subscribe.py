"""A subscription: the server's binary log -> changes -> messages -> topics, exactly once.

    reader task: events -> chunks of messages, each with the position after it   -> a channel of few chunks
    writer task: a chunk -> one Kafka transaction with messages and position     -> the next chunk

An attempt runs until something fails. The next one starts from the positions in the topics; its transaction, with the
same id, fences what is left of the old one. An error that a retry cannot mend ends the subscription.
The chunks bound the memory, whatever the size of a transaction. If the topics are slow, the server waits.
A subscription with a snapshot copies the tables first (`snapshot.py`), and reads the log up to each of its views.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import trio

from barnabas.client.errors import ClientError
from barnabas.client.errors import RefusedError as BrokerRefusedError
from barnabas.connect.binlog.events import EventError
from barnabas.connect.binlog.maker import CHUNK_BYTES, Chunk, Maker, Settings
from barnabas.connect.binlog.masks import Masks
from barnabas.connect.binlog.messages import Format, format_of
from barnabas.connect.binlog.naming import Chosen, NameClashError, Topics
from barnabas.connect.binlog.place import Copied, Position
from barnabas.connect.binlog.reader import Change, Place, Reader, Statement, TableUnknownError
from barnabas.connect.binlog.server import RefusedError, Server, is_final
from barnabas.connect.binlog.sink import OtherReaderError, Sink, TooLargeError
from barnabas.connect.binlog.snapshot import Copier, Judge
from barnabas.connect.mysql.connection import Connection, LostError
from barnabas.connect.mysql.handshake import AuthError
from barnabas.connect.mysql.packets import ProtocolError, ServerError
from barnabas.connect.pauses import Pauses
from barnabas.wire.errors import ErrorCode

#: How many chunks may wait for the writer.
CHUNKS = 3
#: The event loop gets its turn after this long.
_HOLD_SECONDS = 0.003
#: An event of at least this size takes longer than that.
_LARGE_BYTES = 256 << 10
#: The broker's disk is full or broken, or for that reason it cannot end the previous transaction.
_CANNOT_WRITE = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CONCURRENT_TRANSACTIONS)
Say = Callable[..., None]
T = TypeVar("T")


class FinalError(Exception):
    """The subscription cannot continue; the message says why, where, and what helps."""


class Subscription:
    """`run` works until it is cancelled, or raises FinalError. `say(level, event, **fields)` is for the operator."""

    def __init__(self, server: Server, sink: Sink, settings: Settings, say: Say) -> None:
        self._server, self._sink, self._settings, self._say = server, sink, settings, say
        self._format: Format = format_of(settings.format)
        self._topics = Topics(settings.per, settings.prefix)
        self._chosen = Chosen(settings.tables)
        self._masks = Masks(settings.masks, settings.mask_key)
        #: The last written position.
        self.position: Position | None = None
        #: The copier, while rows are copied.
        self.copier: Copier | None = None
        #: Why and when (seconds since 1970) the last attempt ended, and whether the next one is pending.
        self.error, self.error_at, self.is_waiting = "", 0, False

    async def run(self) -> None:
        pauses = Pauses()
        while True:
            pauses.begin()
            try:
                await self._attempt()
            except (RefusedError, AuthError, TooLargeError, OtherReaderError, NameClashError, EventError) as error:
                raise FinalError(str(error)) from None
            except ServerError as error:
                if is_final(error):
                    raise FinalError(f"{self._server.source} refuses: {error}{_remedy(error)}") from None
                reason = str(error)
            except (LostError, ProtocolError) as error:
                reason = str(error)
            except ClientError as error:
                reason = str(error) + _remedy_at_broker(error)
            wait = pauses.next()
            place = "" if self.position is None else _told(self.position.place)
            self.error, self.error_at, self.is_waiting = reason, int(time.time()), True
            self._say(
                "warning",
                "binlog.retrying",
                name=self._settings.name,
                error=reason,
                place=place,
                seconds=round(wait, 1),
            )
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
            send, receive = trio.open_memory_channel[Chunk](CHUNKS)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, receive)
                    if position.copied is not None:
                        position = await self._copy(position, send)
                    await self._server.begin(connection, position.place)
                    self.is_waiting = False
                    self._say("info", "binlog.reading", name=self._settings.name, place=_told(position.place))
                    await self._read(connection, self._maker(position), send)
            except BaseExceptionGroup as group:
                raise _only(group) from None
        finally:
            with trio.CancelScope(shield=True):
                await connection.close()

    def _maker(self, position: Position) -> Maker:
        return Maker(self._server, self._settings, self._format, self._topics, self._chosen, self._masks, position)

    async def _copy(self, position: Position, send: trio.MemorySendChannel[Chunk]) -> Position:
        """Copy the existing rows, and read the changes up to the last of them. Returns the position after them."""

        async def catch_up(position: Position, target: Place, judge: Judge | None) -> Position:
            if Reader(position.place, {}, mariadb=self._server.mariadb).has_reached(target):
                return position
            async with await self._server.open() as connection:
                await self._server.begin(connection, position.place)
                return await self._read(connection, self._maker(position), send, target, judge)

        self.is_waiting = False
        self._say("info", "binlog.copying", name=self._settings.name)
        self.copier = Copier(
            self._server, self._settings, self._format, self._topics, self._chosen, self._masks, catch_up, send
        )
        try:
            return await self.copier.run(position)
        finally:
            self.copier = None

    async def _first(self, connection: Connection) -> Position:
        """The position at which a new subscription begins."""
        start = self._settings.start
        if start == "now":
            place = await self._server.now(connection)
        elif start == "oldest":
            place = await self._server.oldest(connection)
        else:
            place = Place(start, "", 4)
        copied = Copied() if self._settings.snapshot == "initial" else None
        return Position(place=place, source=str(self._server.source), copied=copied)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def _write(self, chunks: trio.MemoryReceiveChannel[Chunk]) -> None:
        async for chunk in chunks:
            await trio.to_thread.run_sync(self._sink.write, chunk.messages, chunk.position)
            self.position = chunk.position

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _read(
        self,
        connection: Connection,
        maker: Maker,
        send: trio.MemorySendChannel[Chunk],
        target: Place | None = None,
        judge: Judge | None = None,
    ) -> Position:
        """Read all changes up to a place, and return the position there; without a place, read forever."""
        server = self._server
        reader = Reader(
            maker.place,
            server.charsets,
            mariadb=server.mariadb,
            exact=server.exact,
            any_metadata=server.any_metadata,
            chosen=self._chosen.has,
        )
        held = time.perf_counter()
        while target is None or not reader.has_reached(target):
            if not connection.is_drained:
                event = connection.buffered_event()
            else:
                waited = await self._wait(connection, maker)
                if waited is None:
                    await send.send(maker.chunk())
                    continue
                event = waited
            parts = reader.parts(event, 1)
            while (found := await _beside(event, next, parts, None)) is not None:
                part, at = found
                await self._take(reader, maker, part, at, judge)
                if maker.size >= CHUNK_BYTES:
                    await send.send(maker.chunk())
                    held = time.perf_counter()
                elif time.perf_counter() - held > _HOLD_SECONDS:
                    await trio.lowlevel.checkpoint()
                    held = time.perf_counter()
        last = maker.chunk()
        await send.send(last)
        return last.position

    async def _wait(self, connection: Connection, maker: Maker) -> bytes | None:
        """The next event; None if collected messages must be written first. Raises LostError."""
        wait = maker.wait(trio.current_time())
        if wait <= 0:
            return None
        silence = self._server.silence
        with trio.move_on_after(min(wait, silence)):
            return await connection.event()
        if wait > silence:
            raise LostError(f"{self._server.source} has been silent for {silence:g} s")
        return None

    async def _take(self, reader: Reader, maker: Maker, event: bytes, at: int, judge: Judge | None) -> None:
        while True:
            try:
                item = await _beside(event, reader.read, event, at)
                break
            except TableUnknownError as unknown:
                columns = await self._server.columns(unknown.database, unknown.name)
                reader.tell(unknown.database, unknown.name, columns)
        if item is None:
            return
        known = None
        if judge is not None and isinstance(item, Change) and maker.judges(item):
            known = await judge.known(item)
        now = trio.current_time()
        await _beside(event, maker.take, item, now, known)
        if isinstance(item, Statement):
            reader.forget()
            if reader.ends_alone(item):
                maker.take(reader.end_alone(event, at), now)


async def _beside(event: bytes, work: Callable[..., T], *args: Any) -> T:
    """Process an event; a large one in a thread, so that the event loop stays free."""
    if len(event) < _LARGE_BYTES:
        return work(*args)
    return await trio.to_thread.run_sync(work, *args)


def _told(place: Place) -> str:
    return place.gtids or f"{place.file}:{place.position}"


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first failure. It has cancelled the other task."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = next((e for e in found.exceptions if not isinstance(e, trio.Cancelled)), found.exceptions[0])
    return found


def _remedy(error: ServerError) -> str:
    """What the operator can do about a lasting error of the server."""
    if error.code in (1045, 1698):
        return ": set the password in the environment variable MYSQL_PWD, and name the right user"
    if error.code in (1044, 1142, 1143, 1227):
        return (
            ": GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO the user; for a snapshot of tables "
            "without transactions LOCK TABLES, too (of MySQL: RELOAD)"
        )
    if error.code == 1236:
        return ": the next part of the binary log is missing; start again with --start now, or a new name (--name)"
    if error.code in (4052, 4151):
        return ": another replica has the same server id; give another one with --server-id"
    if error.code == 1941:
        return ": --start is `now`, `oldest`, or a position such as 0-1-42"
    return ""


def _remedy_at_broker(error: ClientError) -> str:
    if isinstance(error, BrokerRefusedError) and error.code in _CANNOT_WRITE:
        return ": the broker cannot write: make room on its disk, or see its log"
    return ""


def server_id_of(name: str) -> int:
    """A server id for a subscription. The replicas of one server need different ids."""
    return 1_000_000_000 + zlib.crc32(name.encode()) % 1_000_000_000
