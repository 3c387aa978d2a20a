"""A connection to a server, on trio: queries, and the stream of its binary log.

Every wait for the server has a deadline. A connection that was cancelled or has failed is not used again.
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import AsyncIterator, Sequence
from types import TracebackType

import trio

from barnabas.connect.mysql import handshake
from barnabas.connect.mysql.packets import (
    EOF,
    ERROR,
    LOCAL_INFILE,
    OK,
    PacketSplitter,
    ProtocolError,
    is_eof,
    lenenc_bytes,
    lenenc_int,
    packets,
    server_error,
)
from barnabas.connect.mysql.source import Source

CONNECT_SECONDS = 10.0
QUERY_SECONDS = 60.0
_QUERY, _BINLOG_DUMP, _BINLOG_DUMP_GTID, _QUIT = 0x03, 0x12, 0x1E, 0x01
_READ_BYTES = 256 << 10
#: The most bytes of a packet. An event of the binary log is one packet, and holds at least one row.
MAX_PACKET = 256 << 20
_NULL = 0xFB

Row = tuple[str | None, ...]
RawRow = tuple[bytes | None, ...]


class LostError(Exception):
    """The connection is gone, or the server did not answer in time."""


class Connection:
    """A connection, made by `connect`. Only one task may use it at a time."""

    def __init__(self, source: Source, stream: trio.abc.Stream, most: int) -> None:
        self.source = source
        self._stream = stream
        self._splitter = PacketSplitter(most)
        self._waiting: list[bytes] = []
        self._next = 0
        #: The most seconds that one wait for an answer may take.
        self.patience = QUERY_SECONDS
        self.greeting = handshake.Greeting("", 0, 0, b"", "")

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close it at once."""
        await trio.aclose_forcefully(self._stream)

    # --- packets ------------------------------------------------------------------------------------------------------

    async def _packet(self) -> bytes:
        """The next packet. Raises LostError, ProtocolError."""
        while self._next == len(self._waiting):
            try:
                data = await self._stream.receive_some(_READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError, ssl.SSLError) as error:
                raise LostError(f"the connection to {self.source} is lost: {error.__cause__ or error}") from None
            if not data:
                raise LostError(f"{self.source} closed the connection")
            self._waiting = list(self._splitter.feed(bytes(data)))
            self._next = 0
        found = self._waiting[self._next]
        self._next += 1
        return found

    async def _send(self, payload: bytes) -> None:
        data = packets(payload, self._splitter.sequence)
        self._splitter.sequence = self._splitter.sequence + len(payload) // 0xFFFFFF + 1 & 0xFF
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError, ssl.SSLError) as error:
            raise LostError(f"the connection to {self.source} is lost: {error.__cause__ or error}") from None

    async def _command(self, code: int, rest: bytes) -> None:
        self._splitter.sequence = 0
        await self._send(bytes([code]) + rest)

    # --- beginning ----------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Exchange greetings, switch to TLS if wanted, and prove the password."""
        first = await self._packet()
        if first[:1] == bytes([ERROR]):
            raise server_error(first)
        self.greeting = greeting = handshake.greeting_of(first)
        source = self.source
        tls = source.tls != "off"
        if tls:
            if not greeting.capabilities & handshake.TLS:
                raise handshake.AuthError(f"{source} has no TLS: set up its certificate, or connect with ?tls=off")
            await self._send(handshake.tls_request())
            self._stream = trio.SSLStream(
                self._stream, _tls_context(source), server_hostname=source.host, https_compatible=True
            )
            try:
                await self._stream.do_handshake()
            except (trio.BrokenResourceError, ssl.SSLError) as error:
                cause = error.__cause__ or error
                raise handshake.AuthError(
                    f"{source}: TLS failed ({cause}): name the certificate's authority with &ca=FILE"
                ) from None
        known = (handshake.NATIVE, handshake.SHA2)
        plugin = greeting.plugin if greeting.plugin in known else handshake.NATIVE
        proof = handshake.proof_of(plugin, source.password, greeting.nonce, tls=tls)
        await self._send(handshake.answer(greeting, source.user, proof, plugin, tls=tls))
        await self._authenticate(plugin, tls=tls)

    async def _authenticate(self, plugin: str, *, tls: bool) -> None:
        while True:
            told = await self._packet()
            kind = told[0] if told else ERROR
            if kind == OK:
                return
            if kind == ERROR:
                raise server_error(told)
            if kind == EOF:  # the server asks for another plugin
                name, _, nonce = told[1:].partition(b"\0")
                plugin = name.decode("ascii", "replace")
                await self._send(handshake.proof_of(plugin, self.source.password, nonce.removesuffix(b"\0"), tls=tls))
            elif told[:2] == b"\x01\x03":  # caching_sha2_password: the server has it cached
                continue
            elif told[:2] == b"\x01\x04":  # it wants the password itself
                if not tls:
                    raise handshake.AuthError(
                        f"{self.source} asks for the password itself (caching_sha2_password): connect with "
                        "?tls=require, or ?tls=verify"
                    )
                await self._send(self.source.password.encode() + b"\0")
            else:
                raise ProtocolError(f"{kind:#x} is no answer while the connection begins")

    # --- queries ------------------------------------------------------------------------------------------------------

    async def query(self, sql: str) -> list[Row]:
        """Run a statement. Returns its rows as texts, with None for NULL. Raises ServerError, LostError."""
        return [row async for row in self.rows(sql)]

    async def execute(self, sql: str) -> int:
        """Run a statement without a result. Returns how many rows it found or made. Raises ServerError, LostError."""
        await self._command(_QUERY, sql.encode())
        told = await self._soon()
        if told[0] == ERROR:
            raise server_error(told)
        if told[0] != OK:
            raise ProtocolError("the server sent rows that were not requested")
        return lenenc_int(told, 1)[0]

    async def rows(self, sql: str) -> AsyncIterator[Row]:
        """Like `query`, row by row. Take all of them."""
        async for row in self.raw_rows(sql):
            yield tuple(None if value is None else value.decode("utf-8", "surrogateescape") for value in row)

    async def raw_rows(self, sql: str) -> AsyncIterator[RawRow]:
        """Like `rows`, as the received bytes. Each wait for the server ends after `patience`."""
        await self._command(_QUERY, sql.encode())
        first = await self._soon()
        if first[0] == ERROR:
            raise server_error(first)
        if first[0] == OK:
            return
        if first[0] == LOCAL_INFILE:
            raise ProtocolError("the server asks for a local file")
        count, _ = lenenc_int(first, 0)
        for _ in range(count + 1):  # the columns, and EOF
            await self._soon()
        while True:
            row = await self._soon()
            if row[0] == ERROR:
                raise server_error(row)
            if is_eof(row):
                return
            yield _row(row, count)

    async def _soon(self) -> bytes:
        if not self.is_drained:
            return await self._packet()
        try:
            with trio.fail_after(self.patience):
                return await self._packet()
        except trio.TooSlowError:
            raise LostError(f"{self.source} does not answer in {self.patience:.0f} s") from None

    # --- the binary log -----------------------------------------------------------------------------------------------

    async def dump(self, file: str, position: int, server_id: int) -> None:
        """Request the events from a position on (COM_BINLOG_DUMP); then call `event`."""
        await self._command(_BINLOG_DUMP, struct.pack("<IHI", position, 0, server_id) + file.encode())

    async def dump_after(self, executed: bytes, server_id: int) -> None:
        """Ask MySQL for all transactions except those in an encoded GTID set (COM_BINLOG_DUMP_GTID)."""
        head = struct.pack("<HIIQI", 0, server_id, 0, 4, len(executed))
        await self._command(_BINLOG_DUMP_GTID, head + executed)

    async def event(self) -> bytes:
        """The next event. Raises ServerError, LostError; the end of the stream also raises LostError."""
        return self._event(await self._packet())

    def buffered_event(self) -> bytes:
        """The next event, unless `is_drained`. Raises like `event`."""
        packet = self._waiting[self._next]
        self._next += 1
        return self._event(packet)

    def _event(self, packet: bytes) -> bytes:
        if packet[0] == OK:
            return packet
        if packet[0] == ERROR:
            raise server_error(packet)
        raise LostError(f"{self.source} ended the stream of its binary log")

    @property
    def is_drained(self) -> bool:
        """Whether the next event has yet to arrive."""
        return self._next == len(self._waiting)


async def connect(source: Source, *, most: int = MAX_PACKET, patience: float = CONNECT_SECONDS) -> Connection:
    """A connection with a logged-in user. Raises LostError, ServerError, AuthError, ProtocolError."""
    try:
        with trio.fail_after(patience):
            try:
                stream = await trio.open_tcp_stream(source.host, source.port)
            except OSError as error:
                raise LostError(f"{source} cannot be reached: {_cause(error)}") from None
            stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_KEEPALIVE, 1)
            connection = Connection(source, stream, most)
            try:
                await connection.begin()
            except BaseException:
                await connection.close()
                raise
            return connection
    except trio.TooSlowError:
        raise LostError(f"{source} does not answer in {patience:g} s") from None


def _cause(error: BaseException) -> BaseException:
    """The first failed attempt's error: trio tries each address."""
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        return cause.exceptions[0]
    return cause or error


def _tls_context(source: Source) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=source.ca or None)
    if source.tls == "require":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _row(data: bytes, count: int) -> RawRow:
    found: list[bytes | None] = []
    at = 0
    for _ in range(count):
        if data[at] == _NULL:
            found.append(None)
            at += 1
        else:
            value, at = lenenc_bytes(data, at)
            found.append(value)
    return tuple(found)


def name_quoted(name: str) -> str:
    """An identifier quoted for SQL, whatever it contains."""
    return "`" + name.replace("`", "``") + "`"


def quoted(text: str) -> str:
    """A text as an SQL literal, valid in every SQL mode."""
    return "'" + text.replace("'", "''") + "'" if "\\" not in text else "x'" + text.encode().hex() + "'"


def columns_of(rows: Sequence[Row]) -> dict[str, str]:
    """Rows of names and values, as a dictionary."""
    return {str(row[0]).lower(): row[1] or "" for row in rows}
