"""The socket of a connection: bytes in and out without waiting, log data from file to socket.

`PlainTransport` has no encryption. `broker.net.tls` has the encrypted one, which sends log data like all other bytes.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from typing import Protocol

import trio

from barnabas.broker.net.errors import Disconnected
from barnabas.broker.workers import Workers
from barnabas.wire import portable
from barnabas.wire.types import SizedChunk

# The parts of an answer that are not slices of logs (`storage.vnode.Slice`).
IN_MEMORY = (bytes, bytearray, memoryview)
# Log data of at most this many bytes is copied and sent together with the bytes around it: that is cheaper than a
# sendfile.
SMALL_SLICE = 32 << 10
# About the most log data in memory for a client that reads slowly; the rest stays in the files.
GATHER_BYTES = 256 << 10
# Of Linux's poll(2); not every Python has it in `select`.
_POLLRDHUP = 0x2000
# The flag for a piece that is followed by more.
_MORE = socket.MSG_MORE if portable.has(socket, "MSG_MORE") else 0
# sendmsg takes at most this many pieces (IOV_MAX).
MAX_PIECES = 1024


class Transport(Protocol):
    """The interface of a connection's socket. Nothing waits, except `until_sendable`."""

    #: Whether the next `receive` finds something even if the socket is not readable.
    has_more: bool
    #: Whether requests can come, as no handshake is pending.
    is_open: bool

    def fileno(self) -> int:
        """The descriptor that the poller watches."""

    def overdue(self, now: float) -> str | None:
        """The reason to close the connection if it keeps the transport waiting too long. Called every half second while
        the connection is read."""

    def receive(self, room: memoryview) -> int | None:
        """Receive into `room`; gives the number of bytes, 0 at the end, None if there are none yet.

        Raises Disconnected.
        """

    def send(self, chunks: list[SizedChunk]) -> list[SizedChunk]:
        """Send as much as possible without waiting; gives what is left. Raises OSError, Disconnected."""

    async def until_sendable(self, chunk: SizedChunk) -> None:
        """Wait until `chunk`, the first that was left, can be sent."""

    def close(self) -> None:
        """End the connection; a task that waits in `until_sendable` is woken."""


class PlainTransport:
    """TCP without encryption."""

    has_more = False
    is_open = True

    __slots__ = ("_client", "_is_waited_for", "_workers", "sock")

    def __init__(self, sock: socket.socket, workers: Workers, client: str) -> None:
        """Threads of `workers` bring log data into the page cache, for this client."""
        self.sock = sock
        self._client = client
        self._workers = workers
        self._is_waited_for = False

    def fileno(self) -> int:
        return self.sock.fileno()

    def overdue(self, now: float) -> str | None:
        return None

    def receive(self, room: memoryview) -> int | None:
        try:
            return self.sock.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise Disconnected(error.strerror) from None

    def send(self, chunks: list[SizedChunk]) -> list[SizedChunk]:
        return send_some(self.sock, chunks)

    async def until_sendable(self, chunk: SizedChunk) -> None:
        if is_cold(chunk):
            await self._workers.read(self._client, chunk.warm)  # type: ignore[attr-defined]
            return
        self._is_waited_for = True
        try:
            await trio.lowlevel.wait_writable(self.sock)
        finally:
            self._is_waited_for = False

    def close(self) -> None:
        if self._is_waited_for:
            trio.lowlevel.notify_closing(self.sock)
        self.sock.close()


def is_closed(fd: int) -> bool:
    """Whether a client has closed its side of a socket; the socket need not be read for that.

    On systems that cannot tell earlier, this is true only once all bytes are read.
    """
    if sys.platform == "linux" and not portable.forced:
        events = select.poll()
        events.register(fd, _POLLRDHUP)
        return bool(events.poll(0))
    try:
        with socket.socket(fileno=os.dup(fd)) as sock:
            return not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def is_cold(chunk: SizedChunk) -> bool:
    """Whether sending this would wait for the disk, and hold up all clients."""
    return not (isinstance(chunk, IN_MEMORY) or chunk.cached or chunk.look_cached())  # type: ignore[attr-defined]


def in_memory(chunk: SizedChunk) -> SizedChunk | None:
    """The chunk if it can be sent along with other pieces, also a little cached log data; else None."""
    if isinstance(chunk, IN_MEMORY):
        return chunk
    if len(chunk) > SMALL_SLICE or is_cold(chunk):
        return None
    return chunk.read()  # type: ignore[attr-defined,no-any-return]


def send_some(sock: socket.socket, chunks: list[SizedChunk]) -> list[SizedChunk]:
    """Send as much as the socket takes without waiting; gives what is left.

    File slices go from file to socket, except small ones.
    """
    i, count = 0, len(chunks)
    while i < count:
        j, size = i, 0
        while j < count and j - i < MAX_PIECES and size < GATHER_BYTES and (piece := in_memory(chunks[j])) is not None:
            chunks[j] = piece
            size += len(piece)
            j += 1
        chunk = chunks[i]
        if i == j:
            if is_cold(chunk):
                return chunks[i:]
            try:
                sent = chunk.send(sock)  # type: ignore[attr-defined]
            except (BlockingIOError, InterruptedError):
                return chunks[i:]
            if sent == 0:
                raise Disconnected("a log file is shorter than its index says")
            if sent < len(chunk):
                return [chunk.rest(sent), *chunks[i + 1 :]]  # type: ignore[attr-defined]
            i += 1
            continue
        flags = _MORE if j < count else 0
        try:
            sent = sock.send(chunk, flags) if j == i + 1 else sock.sendmsg(chunks[i:j], (), flags)  # type: ignore[arg-type]
        except (BlockingIOError, InterruptedError):
            return chunks[i:]
        if sent < size:
            while sent >= len(chunks[i]):
                sent -= len(chunks[i])
                i += 1
            return [memoryview(chunks[i])[sent:], *chunks[i + 1 :]]  # type: ignore[arg-type]
        i = j
    return []
