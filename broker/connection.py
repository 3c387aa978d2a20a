"""One client connection: frames in, handlers in request order, responses out in request order.

A connection has no task of its own. The poller calls it when there is something to read; what a recv brought is parsed
in place and handled. The answers queue up in request order, and leave at the end of the poller's turn, when those of
other connections do. Those that are not there yet (fsync, long poll, a rebalance) stay in the queue; whoever completes
one sends it, and what was ready behind it, in order. A task is made only for what has to wait: a socket that takes no
more, cold log data, handlers that are coroutines. A client that does not read its answers is not read from any more
once its backlog is full, and costs nothing but that backlog.

Log data that is not in the page cache is read by a thread first, so that only who asked waits for the disk.

The receive buffer is shared by all connections of the event loop, as nothing is awaited while it is in use; only the
unfinished frame at its end is kept, so an idle connection holds no buffer.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from barnabas.broker import large
from barnabas.broker.buffers import SMALL_REQUEST, FrameBuffers
from barnabas.broker.large import Large
from barnabas.broker.order import Order
from barnabas.broker.registry import Answer, Context, Endpoint, Later, find
from barnabas.storage.segment import FileSlice
from barnabas.wire.header import read_request_header, skip_header_tags
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Message, SizedChunk

if TYPE_CHECKING:
    from barnabas.broker.log import Log
    from barnabas.broker.node import Node

RECEIVE_BYTES = 256 << 10
# An unfinished frame up to this size stays with its connection; a larger one asks the budget of all connections.
PARTIAL_BYTES = 64 << 10
# Only Produce carries data. Of anything else this is far more than a client has to say.
MAX_PLAIN_REQUEST = 16 << 20
# How far a connection may run ahead of its answers: requests that wait, and bytes that the client has not read.
MAX_WAITING = 100
MAX_BACKLOG_BYTES = 1 << 20
# How long a connection that always has more to read may go on before the others have their turn.
SLICE_SECONDS = 0.001
# How long a frame may take: so many seconds, and more as its bytes come in at so many a second. The second pair holds
# while other connections wait for the budget that the frame has.
PACE = (30.0, 32 << 10)
PACE_WAITED_FOR = (5.0, 1 << 20)
PACE_SMALL_WAITED_FOR = (0.5, 1 << 20)  # of a frame that others like it wait for
# Log data of so many bytes is copied to be sent with what stands before and after it: that is cheaper than a sendfile.
SMALL_SLICE = 32 << 10
# A client that reads slowly has no more than about so many bytes of log data in memory; the rest stays in the files.
GATHER_BYTES = 256 << 10
# sendmsg takes at most this many pieces (IOV_MAX).
MAX_PIECES = 1024

_shared = bytearray(RECEIVE_BYTES)
_shared_view = memoryview(_shared)
_read_length = struct.Struct(">i").unpack_from


frames = FrameBuffers()


class Disconnected(Exception):
    """The client is gone or broke the protocol; `reason` is for the log, None where it just closed."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "closed by the client")
        self.reason = reason


class Waiting:
    """An answer that is not there yet."""

    __slots__ = ("answer", "correlation_id", "endpoint", "is_answered")

    def __init__(self, answer: Later | Awaitable[Message | Large], endpoint: Endpoint, correlation_id: int) -> None:
        self.answer, self.endpoint, self.correlation_id = answer, endpoint, correlation_id
        self.is_answered = False

    @property
    def is_open(self) -> bool:
        return not (self.answer.finished if isinstance(self.answer, Later) else self.is_answered)

    @property
    def is_done(self) -> bool:
        """A coroutine begins when the answers before have left: until it ends, nothing is known of it."""
        return isinstance(self.answer, Later) and self.answer.applied

    def encoded(self, message: Message | None) -> list[SizedChunk]:
        """Nothing for a request that gets no answer: it was waited for all the same."""
        return [] if message is None else encoded(self.endpoint, message, self.correlation_id)

    def abandon(self) -> None:
        """The client is gone."""
        if isinstance(self.answer, Later):
            self.answer.on_finish = self.answer.on_error = None  # but for `on_applied`: it may hold a frame
            self.answer.abandon()
        elif hasattr(self.answer, "close"):
            self.answer.close()  # a coroutine that never got its turn


def encoded(endpoint: Endpoint, answer: Message, correlation_id: int) -> list[SizedChunk]:
    """A response ready to send. An answer of ours that does not fit its message is our fault, not the client's."""
    try:
        return endpoint.encode(answer, correlation_id)
    except ProtocolError as error:
        name, version = endpoint.api.name, endpoint.version
        raise RuntimeError(f"the answer of {name} version {version} cannot be encoded: {error}") from error


class Connection:
    """A client's connection. `host` is its address as groups report it, `listener` the name it came in by."""

    def __init__(self, node: Node, sock: socket.socket, address: tuple[Any, ...], listener: str) -> None:
        self.node, self.sock, self.listener = node, sock, listener
        self.host: str = address[0]
        self.port: int = address[1]
        self.last_active = trio.current_time()
        self.waiting: deque[Waiting | list[SizedChunk]] = deque()
        self._writer_runs = False  # the writer waits for the first answer, and will send it
        self._awaited: Waiting | None = None  # the answer that the writer is at
        self._scopes: set[trio.CancelScope] = set()  # of the tasks that wait on behalf of the client
        self._closed = False
        self._paused = True  # nothing is read: not opened yet, backlog full, or a large request waits for memory
        self._granting = False  # the last of these
        self._pace_stopped = False  # a frame has begun, but it is we who keep it from coming in
        self._eager = True  # another recv will probably find something: worth trying before waiting
        self._log: Log = node.log
        self._partial = bytearray()  # the beginning of a frame, if it fits the shared buffer
        self._frame: memoryview | None = None  # a larger frame, received into a buffer of its own
        self._filled = 0
        self._granted = 0
        self._frame_since: float | None = None  # when the unfinished frame began, None if there is none
        self._unsent = 0  # bytes of answers that are ready
        self._limit: int = node.config["socket.request.max.bytes"]
        self._order = Order()
        self._held: Endpoint | None = None  # what the next request is for, which waits for one before it
        self._more = False  # whole frames are left from the last turn
        self._slice_ends = 0.0
        self._handled = 0  # frames that the last turn handled

    def open(self) -> None:
        """Begin to serve the client, until it leaves, breaks the protocol, or `close`."""
        self.node.poller.add(self.sock, self._readable)
        self._paused = False

    def close(self, reason: str | None = None) -> None:
        """End the connection; `reason` is for the log."""
        if self._closed:
            return
        self._closed = True
        self.node.poller.forget(self._readable)
        if not self._paused:
            self.node.poller.remove(self.sock)
        if self._writer_runs:
            trio.lowlevel.notify_closing(self.sock)
        self.sock.close()
        for scope in self._scopes:
            scope.cancel()
        self.node.request_bytes.release(self._granted)
        self._granted = 0
        for item in self.waiting:
            if isinstance(item, Waiting) and item is not self._awaited:
                item.abandon()
        self.waiting.clear()
        self._frame = None
        self._partial = bytearray()
        if reason:
            self._log.info("connection.closed", client=f"{self.host}:{self.port}", reason=reason)
        self.node.disconnected(self)

    def _start(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run a task that ends with the connection."""
        self.node.nursery.start_soon(self._run, work, args)

    async def _run(self, work: Callable[..., Awaitable[None]], args: tuple[Any, ...]) -> None:
        if self._closed:
            return
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                await work(*args)
            except Exception as error:
                self._failed(error)
            finally:
                self._scopes.discard(scope)

    def _failed(self, error: Exception) -> None:
        """End the connection for an error that its client made, or that is ours."""
        if isinstance(error, Disconnected):
            self.close(error.reason)
        elif isinstance(error, OSError | ProtocolError):
            self.close(str(error))
        else:
            if not self._closed:
                self._log.exception("connection.failed", error, client=f"{self.host}:{self.port}")
            self.close()

    def is_too_slow(self, now: float) -> bool:
        """Whether the frame that is coming in takes longer than it may."""
        if self._frame_since is None:
            return False
        received = self._filled if self._frame is not None else len(self._partial)
        waited_for = self._granted > 0 and self.node.request_bytes.is_waited_for
        seconds, rate = PACE
        if waited_for:
            seconds, rate = PACE_WAITED_FOR if self._granted > SMALL_REQUEST else PACE_SMALL_WAITED_FOR
        return now - self._frame_since > seconds + received / rate

    # --- receiving ----------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        if self._closed or self._paused:
            return
        try:
            self._receive()
        except Exception as error:
            self._advance_for_others()  # what was asked before a request that failed has its answer
            self._failed(error)

    def _receive(self) -> None:
        """Read and handle what there is, for a slice of time."""
        self._slice_ends = time.perf_counter() + SLICE_SECONDS
        while self._receive_some():
            if time.perf_counter() > self._slice_ends:
                self.node.poller.again(self._readable)
                return
            self._advance()  # who has more to say does not wait for the answers before

    def _receive_some(self) -> bool:
        """Handle what one recv brings, or what is left from the last one; whether to go on."""
        size = got = 0
        room = RECEIVE_BYTES
        if self._more:
            self._more = False
            if self._frame is None:
                size = len(self._partial)
                _shared[:size] = self._partial
        else:
            if self._frame is not None:
                target: Any = self._frame[self._filled :]
            else:
                size = len(self._partial)
                _shared[:size] = self._partial
                target = _shared_view[size:]
            room = len(target)
            try:
                got = self.sock.recv_into(target)
            except (BlockingIOError, InterruptedError):
                self._eager = False
                return False
            except OSError as error:
                raise Disconnected(error.strerror) from None
            if got == 0:
                unfinished = self._frame is not None or self._partial
                raise Disconnected("closed by the client inside a request" if unfinished else None)
            self.last_active = trio.current_time()
        if self._frame is not None:
            self._filled += got
            if self._filled < len(self._frame):
                return True
            self._handle_large()
        elif large := self._handle_small(size + got):
            self._begin_large(*large)
        if self.waiting:
            self.node.turn.soon(self._advance_for_others)
        self._eager = self._eager or self._handled > 1 or got == room or self._frame is not None
        if self._paused or self._closed:
            return False
        if self._held is not None:
            self._pause()
            return False
        if self._is_ahead():
            self._advance()
            if self._is_ahead():
                self._pause()
                return False
        return self._eager or self._more

    def _is_ahead(self) -> bool:
        """Whether there are more answers to wait for, or to send, than a connection may have."""
        return self._unsent > MAX_BACKLOG_BYTES or len(self.waiting) > MAX_WAITING

    def _pause(self) -> None:
        """Read no more, so that the client cannot go on either."""
        self._paused = True
        self.node.poller.remove(self.sock)
        # It is we who keep the frame from coming in.
        self._pace_stopped, self._frame_since = self._frame_since is not None, None

    def _resume_if_it_may(self) -> None:
        """Read on, unless there is too much to send still, or the next request waits for an earlier one."""
        if self._granting or len(self.waiting) > MAX_WAITING // 2 or self._unsent > MAX_BACKLOG_BYTES // 2:
            return
        if self._held is not None:
            if self._order.holds(self._held.api):
                return
            self._held = None
        self._resume()

    def _resume(self) -> None:
        self._paused = False
        self.node.poller.add(self.sock, self._readable)
        if self._pace_stopped:
            self._frame_since = trio.current_time()
        if self._more:
            self.node.poller.again(self._readable)

    def _handle_small(self, size: int) -> tuple[int, bytes] | None:
        """Handle the whole frames in the shared buffer and keep what is left for the next turn.

        The length of a frame that needs a buffer of its own and its first bytes, if the rest is of such a frame.
        """
        pos = length = handled = 0
        while size - pos >= 4:
            (length,) = _read_length(_shared, pos)
            if length < 0 or length > self._limit:
                raise Disconnected(f"request of {length} bytes (socket.request.max.bytes is {self._limit})")
            end = pos + 4 + length
            if end > size:
                break
            if handled and (self._is_ahead() or time.perf_counter() > self._slice_ends):
                self._more = True  # small requests can have large answers, which must go first, or take long
                break
            # Small frames are copied: what is decoded from them may outlive this turn.
            frame = _shared_view[pos + 4 : end]
            if not self._dispatch(bytes(frame) if length < 65536 else frame):
                self._more = True
                break
            handled += 1
            pos = end
        self._handled = handled
        if pos == size:
            if self._partial:
                self._partial = bytearray()
            self._frame_since = None
            return None
        if pos or self._frame_since is None:
            self._frame_since = None if self._more else self.last_active
        if size - pos < 4 or length + 4 <= PARTIAL_BYTES or self._more:
            self._partial = _shared[pos:size]
            return None
        self._partial = bytearray()
        return length, bytes(_shared_view[pos + 4 : size])

    def _begin_large(self, length: int, beginning: bytes) -> None:
        """Receive the rest of this frame into a buffer of its own, once the budget of all connections has room."""
        if self.node.request_bytes.try_acquire(length):
            self._granted = length
            self._take_buffer(length, beginning)
        else:
            self._granting = True
            self._pause()
            self._start(self._wait_for_budget, length, beginning)

    async def _wait_for_budget(self, length: int, beginning: bytes) -> None:
        await self.node.request_bytes.acquire(length)
        if self._closed:  # in the pass in which the bytes were granted
            self.node.request_bytes.release(length)
            return
        self._granted = length  # from here on `close` gives it back
        self._granting = False
        self._take_buffer(length, beginning)
        self._resume()

    def _take_buffer(self, length: int, beginning: bytes) -> None:
        self._frame_since = trio.current_time()
        self._frame = frames.take(length)
        self._frame[: len(beginning)] = beginning
        self._filled = len(beginning)

    def _handle_large(self) -> None:
        frame = self._frame
        assert frame is not None
        self._frame_since = None
        if not self._dispatch(frame):
            self._more = True
            return
        self._frame = None
        granted, self._granted = self._granted, 0
        last = self.waiting[-1] if self.waiting else None
        if isinstance(last, Waiting) and isinstance(last.answer, Later) and not last.answer.applied:
            last.answer.on_applied = partial(self._applied, frame, granted)  # the frame is still looked at
        else:
            self._give_back(frame, granted)

    def _give_back(self, frame: memoryview, granted: int) -> None:
        frames.give_back(frame)
        self.node.request_bytes.release(granted)

    def _applied(self, frame: memoryview, granted: int) -> None:
        """A request whose handler took its time has had its effects, and needs its frame no more."""
        self._give_back(frame, granted)
        self._finished()

    # --- handling -----------------------------------------------------------------------------------------------------

    def _dispatch(self, frame: bytes | memoryview) -> bool:
        """Handle one request, and queue its answer; False if it has to wait for an earlier one."""
        header = read_request_header(frame)
        key, version, correlation_id = header.api_key, header.api_version, header.correlation_id
        if key == 18 and not 0 <= version <= 4:  # KIP-511: answer in version 0, so that the client can step down
            from barnabas.broker.apis.api_versions import unsupported

            self._queue(encoded(find(18, 0), unsupported(), correlation_id))
            return True
        found = find(key, version)
        if self._order.holds(found.api):
            self._held = found
            return False
        if len(frame) > MAX_PLAIN_REQUEST and key != 0:
            raise Disconnected(f"{found.api.name} request of {len(frame)} bytes; only Produce may be so large")
        pos = skip_header_tags(frame, header.end) if found.flexible else header.end
        context = Context(self.node, self, version, header.client_id)
        answer: Answer
        if len(frame) > large.LARGE_FRAME and large.is_large(key, len(frame)):
            answer = large.handle(found, bytes(frame), pos, context)
        else:
            request, _ = found.decode(frame, pos, large.MAX_OF.get(key, large.MAX_ELEMENTS))
            answer = found.handle(context, request)
        if isinstance(answer, Message):
            self._queue(encoded(found, answer, correlation_id))
        elif answer is not None:
            if isinstance(answer, Later):
                answer.on_finish, answer.on_error = self._finished, self._failed
                if not answer.applied:
                    answer.on_applied = self._finished
            waiting = Waiting(answer, found, correlation_id)
            self.waiting.append(waiting)
            self._order.add(waiting, found.api)
        return True

    def _queue(self, chunks: list[SizedChunk]) -> None:
        """Have an answer that is ready sent, behind those before it."""
        for chunk in chunks:
            self._unsent += len(chunk)
        waiting = self.waiting
        if waiting and isinstance(last := waiting[-1], list):
            last += chunks
        else:
            waiting.append(chunks)

    def _backlog(self) -> int:
        """Bytes of answers that are ready but not sent."""
        return sum(len(chunk) for item in self.waiting if isinstance(item, list) for chunk in item)

    # --- sending ------------------------------------------------------------------------------------------------------

    def _finished(self) -> None:
        """An answer that waited is there."""
        self.node.turn.soon(self._advance_for_others)

    def _advance_for_others(self) -> None:
        """`_advance` in whatever task has completed an answer: what goes wrong is this connection's end, not theirs."""
        try:
            self._advance()
        except Exception as error:
            self._failed(error)

    def _advance(self) -> None:
        """Send what is ready, in order; where that means to wait, leave it to the writer."""
        if self._closed:
            return
        if not self._writer_runs and self._send_ready():
            self._writer_runs = True
            self._start(self._write)
        if self._paused:
            self._resume_if_it_may()

    def _send_ready(self) -> bool:
        """Send the answers that are there, up to the first that is not. Whether a task has to wait for that one."""
        waiting = self.waiting
        ready: list[SizedChunk] = []
        while waiting:
            item = waiting[0]
            if isinstance(item, list):
                chunks = item
            elif isinstance(item.answer, Later) and item.answer.finished:
                chunks = item.encoded(item.answer.message)
            else:
                break
            waiting.popleft()
            if ready:
                ready += chunks
            else:
                ready = chunks
        left = send_some(self.sock, ready)
        if left:
            waiting.appendleft(left)
        if waiting:
            self._unsent = self._backlog()
        else:
            self._unsent = 0
            self._order.forget()
        return bool(left) or bool(waiting and not _is_later(waiting[0]))

    async def _write(self) -> None:
        """A task for as long as the first answer has to be waited for, or the socket takes no more."""
        waiting = self.waiting
        more = True
        while more:
            item = waiting[0]
            if isinstance(item, Waiting):
                assert not isinstance(item.answer, Later)
                self._awaited = item
                message = await item.answer
                self._awaited = None
                item.is_answered = True
                if isinstance(message, large.Large):
                    chunks = await message.encoded(self.node, item.endpoint, item.correlation_id)
                else:
                    chunks = item.encoded(message)
                if not self._closed:
                    waiting[0] = chunks
            elif is_cold(item[0]):
                await trio.to_thread.run_sync(item[0].warm, limiter=self.node.cold_reads)  # type: ignore[attr-defined]
            else:
                await trio.lowlevel.wait_writable(self.sock)
            if self._closed:
                return
            self.last_active = trio.current_time()
            more = self._send_ready()
            if self._paused:
                self._resume_if_it_may()
        self._writer_runs = False


def _is_later(item: Waiting | list[SizedChunk]) -> bool:
    return isinstance(item, Waiting) and isinstance(item.answer, Later)


def is_cold(chunk: SizedChunk) -> bool:
    """Whether sending this would wait for the disk, and everybody with it."""
    return isinstance(chunk, FileSlice) and not chunk.cached and not chunk.look_cached()


def in_memory(chunk: SizedChunk) -> SizedChunk | None:
    """What can be sent along with other pieces: a little log data, too, if it is cached; None for anything else."""
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return chunk
    if len(chunk) > SMALL_SLICE or is_cold(chunk):
        return None
    return chunk.read()  # type: ignore[attr-defined,no-any-return]


def send_some(sock: socket.socket, chunks: list[SizedChunk]) -> list[SizedChunk]:
    """Send what the socket takes without waiting; give back what is left. File slices go from file to socket, but for
    small ones."""
    i, count = 0, len(chunks)
    while i < count:
        j, size = i, 0
        while (
            j < count and j - i < MAX_PIECES and size < GATHER_BYTES and (piece := in_memory(chunks[j])) is not None
        ):  # fmt: skip
            chunks[j] = piece
            size += len(piece)
            j += 1
        chunk = chunks[i]
        if i == j:
            if is_cold(chunk):
                return chunks[i:]
            try:
                sent = os.sendfile(sock.fileno(), chunk.fileno(), chunk.position, len(chunk))  # type: ignore[attr-defined]
            except (BlockingIOError, InterruptedError):
                return chunks[i:]
            if sent == 0:
                raise Disconnected("a log file ended before its index says")
            if sent < len(chunk):
                return [chunk.rest(sent), *chunks[i + 1 :]]  # type: ignore[attr-defined]
            i += 1
            continue
        flags = socket.MSG_MORE if j < count else 0
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
