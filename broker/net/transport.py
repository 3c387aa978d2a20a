"""The socket of a connection: bytes in and out without waiting, log data from file to socket.

`PlainTransport` is the one without encryption; `broker.net.tls` has the other, which sends log data as it does all
other bytes.
"""

from __future__ import annotations

import os
import select
import socket
from typing import Protocol

import trio

from barnabas.broker.net.errors import Disconnected
from barnabas.broker.workers import Workers
from barnabas.wire import portable
from barnabas.wire.types import SizedChunk

# What an answer holds besides slices of logs (`storage.vnode.Slice`).
IN_MEMORY = (bytes, bytearray, memoryview)
# Log data of at most this many bytes is copied to be sent with what stands before and after it: that is cheaper than a
# sendfile.
SMALL_SLICE = 32 << 10
# A client that reads slowly has no more than about this much log data in memory; the rest stays in the files.
GATHER_BYTES = 256 << 10
# Of a piece behind which more comes.
_MORE = socket.MSG_MORE if portable.has(socket, "MSG_MORE") else 0
# sendmsg takes at most this many pieces (IOV_MAX).
MAX_PIECES = 1024


class Transport(Protocol):
    """What a connection asks of its socket. None of it waits, except for `until_sendable`."""

    #: Whether the next `receive` finds something, though the socket has nothing to tell.
    has_more: bool
    #: Whether requests can come: no handshake has to be done first.
    is_open: bool

    def fileno(self) -> int:
        """What the poller watches."""

    def overdue(self, now: float) -> str | None:
        """Why the connection is to be closed, if it keeps the transport waiting for too long. Asked every half second,
        while the connection is read from."""

    def receive(self, room: memoryview) -> int | None:
        """The number of bytes that were received into `room`; 0 at the end, None if there are none yet.

        Raises Disconnected.
        """

    def send(self, chunks: list[SizedChunk]) -> list[SizedChunk]:
        """Send what can be sent without waiting; what is left. Raises OSError, Disconnected."""

    async def until_sendable(self, chunk: SizedChunk) -> None:
        """Wait until `chunk`, the first that was left, can be sent on."""

    def close(self) -> None:
        """End the connection; a task that waits in `until_sendable` is told."""


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
    """Whether a client has closed its side of a socket, which need not be read for that.

    Where the system cannot tell before all is read, that is when all that came is read.
    """
    if portable.has(select, "POLLRDHUP"):
        events = select.poll()
        events.register(fd, select.POLLRDHUP)
        return bool(events.poll(0))
    try:
        with socket.socket(fileno=os.dup(fd)) as sock:
            return not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def is_cold(chunk: SizedChunk) -> bool:
    """Whether sending this would wait for the disk, and everybody with it."""
    return not (isinstance(chunk, IN_MEMORY) or chunk.cached or chunk.look_cached())  # type: ignore[attr-defined]


def in_memory(chunk: SizedChunk) -> SizedChunk | None:
    """What can be sent along with other pieces: a little log data, too, if it is cached; None for anything else."""
    if isinstance(chunk, IN_MEMORY):
        return chunk
    if len(chunk) > SMALL_SLICE or is_cold(chunk):
        return None
    return chunk.read()  # type: ignore[attr-defined,no-any-return]


def send_some(sock: socket.socket, chunks: list[SizedChunk]) -> list[SizedChunk]:
    """Send what the socket takes without waiting; give back what is left.

    File slices go from file to socket, except for small ones.
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
                raise Disconnected("a log file ended before its index says")
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
