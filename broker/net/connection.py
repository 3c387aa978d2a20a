"""One client connection: requests in, answers out, both in order.

    transport -> framing -> dispatch -> handler -> answers -> transport

It has no task of its own. The poller calls it when there is something to read; the bytes of a recv are handled at once.
Answers leave at the end of the poller's turn, together with those of other connections. An answer that comes later is
sent by the code that completes it, with all ready answers behind it. A task is started only where something must wait:
for a socket that is full, cold log data, memory for a large request, a handler that is a coroutine.

The state decides whether a connection reads. A client that does not read its answers is not read from either, and costs
no more than its backlog. A request that must not overtake an earlier one keeps later ones in the socket.

    NEW      not opened yet
    READS    the poller calls when there is something to read
    FULL     there are too many answers to send, or to wait for
    HELD     the next request waits until an earlier one is visible
    MEMORY   a large request has more to receive than the memory of all connections has room for
    MUTED    the client is over a quota: its next request waits until the throttle time is over (KIP-219)
    CLOSED   the end
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from time import thread_time
from typing import Any

import trio

from barnabas.broker.log import EventLog
from barnabas.broker.net import frame_timer, large
from barnabas.broker.net.answers import MAX_BACKLOG_BYTES, Answers
from barnabas.broker.net.buffers import ByteBudget, FrameBuffers, Holding, RequestMemory
from barnabas.broker.net.delayed_response import Coroutine, DelayedResponse
from barnabas.broker.net.errors import Disconnected
from barnabas.broker.net.frame_timer import FrameTimer
from barnabas.broker.net.framing import KEPT_BYTES, FrameError, Framing, SpeaksTls
from barnabas.broker.net.metering import Meter
from barnabas.broker.net.poller import Poller
from barnabas.broker.net.transport import Transport, is_closed
from barnabas.broker.net.turn import Turn
from barnabas.broker.quotas.manager import QuotaManager
from barnabas.broker.registry import Answer, Context, Endpoint
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.security.principals import ANONYMOUS, Principal, client_of
from barnabas.broker.security.sasl import Login
from barnabas.broker.settings.listeners import Listener
from barnabas.broker.settings.quotas import ClientQuotas
from barnabas.broker.workers import Turns
from barnabas.wire.header import read_request_header, skip_header_tags
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Message, SizedChunk

# Only Produce carries data. For any other request this is far more than a client needs.
MAX_PLAIN_REQUEST = 16 << 20
# The most bytes of answers that a client may leave unread before it has logged in.
STRANGERS_BACKLOG_BYTES = 16 << 10
# How long a connection that always has more to read is served before the others have their turn.
SLICE_SECONDS = 0.001


class State(Enum):
    NEW = "new"
    READS = "reads"
    FULL = "full"
    HELD = "held"
    MEMORY = "memory"
    MUTED = "muted"
    CLOSED = "closed"


NEXT: Mapping[State, frozenset[State]] = {
    State.NEW: frozenset({State.READS, State.CLOSED}),
    State.READS: frozenset({State.FULL, State.HELD, State.MEMORY, State.MUTED, State.CLOSED}),
    State.FULL: frozenset({State.READS, State.MUTED, State.CLOSED}),
    State.HELD: frozenset({State.READS, State.MUTED, State.CLOSED}),
    State.MEMORY: frozenset({State.READS, State.CLOSED}),
    State.MUTED: frozenset({State.READS, State.CLOSED}),
    State.CLOSED: frozenset(),
}
#: States from which it may read on when answers have been sent.
WAITS = frozenset((State.FULL, State.HELD, State.MUTED))


@dataclass(frozen=True, slots=True)
class Shared:
    """What the connections of a broker share."""

    nursery: trio.Nursery
    poller: Poller
    turn: Turn
    log: EventLog
    find: Callable[[int, int], Endpoint]  # by API key and version; raises ProtocolError
    authorizer: Authorizer | None  # without one, every client may do everything
    quotas: QuotaManager
    known_quotas: ClientQuotas
    buffers: FrameBuffers
    memory: RequestMemory
    large_requests: Turns
    max_request_bytes: int
    tell_seldom: Callable[..., None]  # logs an event that strangers could trigger any number of times
    max_strangers_bytes: int  # of a request before the client has logged in
    bare: Endpoint  # takes SASL tokens without a request around them
    ended: Callable[[Connection], None]
    known: Callable[[Connection], None]  # it no longer belongs to a stranger
    client_changed: Callable[[Connection, str], None]  # with its previous client


class Connection:
    """A client's connection. `host` is its address as groups report it, `listener` the name of its listener."""

    # Python looks up more than thirty attributes of an object more slowly without them.
    __slots__ = (
        *("_answers", "_budget", "_eager", "_ends", "_frame_timer", "_framing", "_held", "_holding", "_is_new"),
        *("_is_stranger", "_meter", "_muted_until", "_opened", "_scopes", "_sender_runs", "_shared", "_slice_began"),
        *("_slice_ends", "_transport", "authorizer", "client", "host", "last_active", "listener", "login", "origin"),
        *("port", "principal", "protocol", "software", "state", "__weakref__"),
    )

    def __init__(
        self, shared: Shared, transport: Transport, host: str, port: int, listener: Listener, login: Login | None = None
    ) -> None:
        """`login` is set on listeners where clients log in."""
        self.host, self.port, self.listener = host, port, listener.name
        self.protocol = listener.protocol
        self.principal = ANONYMOUS
        #: Name and version of the client, as it says with ApiVersions (KIP-511).
        self.software = "", ""
        #: The state of the client's login; None if clients do not log in here.
        self.login = login
        #: The client whose share of common resources it uses; and the client that it was before it proved who it is.
        self.client = self.origin = client_of(self.principal, host)
        self.authorizer = shared.authorizer
        self.state = State.NEW
        self.last_active = trio.current_time()
        self._shared = shared
        self._transport = transport
        self._framing = Framing(shared.max_request_bytes if login is None else shared.max_strangers_bytes)
        self._answers = Answers()
        self._is_stranger = login is not None or not transport.is_open
        if self._is_stranger:
            self._answers.most_bytes = STRANGERS_BACKLOG_BYTES
        self._frame_timer = FrameTimer()
        self._holding: Holding | None = None  # the large incoming frame's part of the common memory
        self._budget = shared.memory.large  # the budget it is from
        self._opened = trio.current_time()
        self._ends = False  # once the present answers are sent
        self._is_new = True  # no request was handled yet
        self._held: Endpoint | None = None  # the endpoint of the next request, in HELD
        self._muted_until = 0.0  # the end of the throttle time; 0 if there is none
        self._meter = Meter(shared.quotas)
        self._eager = True  # another recv will probably find something: try before waiting
        self._slice_began = self._slice_ends = 0.0
        self._sender_runs = False
        self._scopes: set[trio.CancelScope] = set()  # of tasks that wait for the client

    def open(self) -> None:
        """Begin to serve the client, until it leaves, breaks the protocol, or `close`."""
        self._enter(State.READS)

    def known_as(self, principal: Principal) -> None:
        """The client has proved who it is: for the first time, again, or with a certificate before it logs in."""
        if self.login is None or not self.login.is_new:
            self._is_stranger = False
            self._framing.limit, self._answers.most_bytes = self._shared.max_request_bytes, MAX_BACKLOG_BYTES
            self._shared.known(self)
        before, self.principal = self.client, principal
        self.client = client_of(principal, self.host)
        if self.client != before:
            self._shared.client_changed(self, before)

    @property
    def is_stranger(self) -> bool:
        """Whether the client has not yet proved who it is, or not ended its TLS handshake."""
        return self._is_stranger

    def end(self) -> None:
        """Accept no more requests, and close when the answers to earlier ones are sent."""
        self._ends = True

    def is_strange_since(self) -> float | None:
        """When it was opened, if the client has not proved who it is yet; None if it has, or need not."""
        return self._opened if self._is_stranger and self.login is not None else None

    def read_soon(self) -> None:
        """Read what the transport holds, even if the socket is not readable."""
        if self.state is State.READS:
            self._shared.poller.again(self._readable)

    def send_soon(self) -> None:
        """Send ready answers, and what the transport itself has to send."""
        self._shared.turn.soon(self._send_soon)

    def throttle(self, seconds: float) -> None:
        """Handle no further request for a while, except one that is already coming into shared memory."""
        runs = self._muted_until > 0
        self._muted_until = max(self._muted_until, trio.current_time() + seconds)
        if not runs:
            self._start(self._wait_muted)

    @property
    def is_muted(self) -> bool:
        """Whether it is not read because its client is over a quota."""
        return self.state is State.MUTED

    @property
    def is_left(self) -> bool:
        """Whether the client has closed its side; also known while nothing is read."""
        return is_closed(self._transport.fileno())

    def close(self, reason: str | None = None) -> None:
        """End the connection; `reason` is for the log."""
        if self.state is State.CLOSED:
            return
        self._enter(State.CLOSED)
        self._shared.poller.forget(self._readable)
        self._transport.close()
        for scope in self._scopes:
            scope.cancel()
        if self._holding is not None:
            self._budget.release(self._holding)
            self._holding = None
        self._answers.abandon()
        self._framing = Framing(0)
        if reason:
            self._shared.log.info("connection.closed", client=f"{self.host}:{self.port}", reason=reason)
        self._shared.ended(self)

    def is_too_slow(self, now: float) -> bool:
        """Whether the incoming frame takes longer than it may."""
        allowance = frame_timer.USUAL
        if self._holding is not None and self._budget.is_waited_for:
            is_small = self._budget is not self._shared.memory.large
            allowance = frame_timer.SMALL_WAITED_FOR if is_small else frame_timer.WAITED_FOR
        return self._frame_timer.is_too_slow(now, self._framing.received_bytes, allowance)

    def stands_still(self, now: float) -> bool:
        """Whether it holds memory that others wait for while its client neither sends nor reads."""
        if self._holding is None or not self._budget.is_waited_for:
            return False
        patience = frame_timer.PATIENCE_HELD if self.state is State.HELD else frame_timer.PATIENCE
        return self.state is not State.MEMORY and now - self.last_active > patience

    def overdue(self, now: float) -> str | None:
        """The reason to close it if its client is too slow; an empty text if that is already logged."""
        if self.is_too_slow(now):
            return "the request came in too slowly"
        return self._transport.overdue(now) if self.state is State.READS else None

    @property
    def held_bytes(self) -> int:
        """Bytes of the common memory that the large incoming frame holds."""
        return 0 if self._holding is None else self._holding.bytes

    @property
    def unfinished_bytes(self) -> int:
        """Bytes held of incomplete requests."""
        return self._framing.received_bytes

    @property
    def unsent_bytes(self) -> int:
        """Bytes of ready answers that the client has not taken."""
        return self._answers.unsent_bytes

    # --- state --------------------------------------------------------------------------------------------------------

    def _enter(self, state: State) -> None:
        """Change the state; the only place that does. The poller watches the socket only in READS."""
        assert state in NEXT[self.state], f"{self.state} to {state}"
        before, self.state = self.state, state
        poller = self._shared.poller
        if state is State.READS:
            try:
                poller.add(self._transport, self._readable)
            except OSError:
                self.state = before
                raise
            self._frame_timer.go_on(trio.current_time())
            if self._framing.has_frame or self._transport.has_more:
                poller.again(self._readable)
        elif before is State.READS:
            poller.remove(self._transport)
            self._frame_timer.stop()

    def _read_on(self) -> None:
        """Read again, unless there is still too much to send, or the next request waits for an earlier one."""
        if self._ends or not self._answers.has_room:
            return
        if self._held is not None:
            if self._answers.holds(self._held.api):
                return
            self._held = None
        if not self._muted_until:
            if self._framing.wanted:
                self._take_buffer(self._framing.wanted)
            self._enter(State.READS)
        elif self.state is not State.MUTED:
            self._enter(State.MUTED)

    def _mute(self) -> None:
        """Stop reading because the client is over a quota, unless it holds memory that others may want."""
        if self.state is State.READS and self._holding is None:
            self._enter(State.MUTED)

    async def _wait_muted(self) -> None:
        while (left := self._muted_until - trio.current_time()) > 0:
            await trio.sleep(left)
        self._muted_until = 0.0
        if self.state is State.MUTED:
            self.last_active = trio.current_time()
            self._read_on()

    def _fail(self, error: Exception) -> None:
        """End the connection because of an error of the client or of our own."""
        if isinstance(error, Disconnected):
            self.close(error.reason)
        elif isinstance(error, SpeaksTls):
            self._shared.tell_seldom("plain.tls_client", listener=self.listener, client=self.host, reason=str(error))
            self.close()
        elif isinstance(error, OSError | ProtocolError | FrameError):
            self.close(str(error))
        else:
            if self.state is not State.CLOSED:
                self._shared.log.exception("connection.failed", error, client=f"{self.host}:{self.port}")
            self.close()

    def _start(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run a task that ends with the connection."""
        self._shared.nursery.start_soon(self._run, work, args)

    async def _run(self, work: Callable[..., Awaitable[None]], args: tuple[Any, ...]) -> None:
        if self.state is State.CLOSED:
            return
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                await work(*args)
            except Exception as error:
                self._fail(error)
            finally:
                self._scopes.discard(scope)
        self.last_active = trio.current_time()

    # --- requests -----------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        if self.state is not State.READS:
            return
        try:
            if self._meter.quota is None:
                self._receive()
            else:
                self._meter.run(self._receive)
        except Exception as error:
            self._send_soon()  # requests before the failed one get their answers
            self._fail(error)

    def _receive(self) -> None:
        """Read and handle what has come, for a slice of time."""
        self._slice_began = time.perf_counter()
        self._slice_ends = self._slice_began + SLICE_SECONDS
        while self._receive_some():
            if time.perf_counter() > self._slice_ends:
                self._shared.poller.again(self._readable)
                return
            self._send()  # a client with more to send does not wait for the previous answers
            if self.state is not State.READS:  # they may have been the last ones
                return

    def _receive_some(self) -> bool:
        """Handle the bytes of one recv, or what is left of the last one; whether to continue."""
        framing, answers, holding = self._framing, self._answers, self._holding
        is_allowed = True
        if framing.has_frame:
            frame = framing.resume()
        else:
            room = framing.room()
            if holding is not None:
                allowed = self._budget.allowed(holding)
                is_allowed = allowed > 0
                room = room[: allowed or 1]  # only a connection with something to read waits for memory
            elif self._shared.memory.is_short or self._is_stranger or self._meter.quota is not None:
                room = room[:KEPT_BYTES]
            got = self._transport.receive(room)
            if got is None:
                self._eager = False
                return False
            if got == 0:
                raise Disconnected("closed by the client inside a request" if framing.is_inside else None)
            self.last_active = trio.current_time()
            if holding is not None:
                self._budget.took(holding, got)
            frame = framing.received(got)
            if got == len(room) or self._transport.has_more:
                self._eager = True
        handled = self._handle(frame)
        if handled > 1 or self._holding is not None:
            self._eager = True
        if answers.queue:
            self._shared.turn.soon(self._send_soon)
            if answers.is_full:
                self._send()
                if self.state is State.READS and answers.is_full:
                    self._enter(State.FULL)
        if not is_allowed and self._holding is holding and self.state is State.READS and not framing.has_frame:
            self._enter(State.MEMORY)
            self._start(self._wait_for_memory, holding)
        return self.state is State.READS and (self._eager or framing.has_frame)

    def _handle(self, frame: bytes | memoryview | None) -> int:
        """Handle the complete frames, beginning with `frame`; gives their number."""
        framing, answers = self._framing, self._answers
        handled = 0
        while frame is not None:
            # Small requests can take long, or have large answers, which must be sent first.
            if handled and (answers.is_full or self._muted_until or time.perf_counter() > self._slice_ends):
                framing.put_back()
                break
            if not self._dispatch(frame):
                framing.put_back()
                if self.state is State.READS:
                    self._enter(State.HELD)
                break
            handled += 1
            if self._holding is not None:
                self._let_go_of(frame, self._holding)
            frame = framing.next()
        if handled:
            self._is_new = False
        if framing.is_inside:
            if handled or not self._frame_timer.is_running:
                self._frame_timer.begin(self.last_active)
            if framing.wanted and self.state is State.READS and not self._muted_until:
                self._take_buffer(framing.wanted)
        elif handled or framing.has_frame:
            self._frame_timer.end()
        if self._muted_until:
            self._mute()
        return handled

    def _dispatch(self, frame: bytes | memoryview) -> bool:
        """Handle one request, and queue its answer; False if it has to wait for an earlier one."""
        login = self.login
        if login is not None and login.is_raw:
            return self._dispatch_bare(frame)
        header = read_request_header(frame)
        key, version = header.api_key, header.api_version
        endpoint = self._shared.find(key, version)
        api = endpoint.api
        if self._answers.holds(api):
            self._held = endpoint
            return False
        if login is not None and not login.admits(key, trio.current_time()):
            raise Disconnected(f"{api.name} request of a client that {login.lacks}")
        if len(frame) > MAX_PLAIN_REQUEST and key != 0:
            raise Disconnected(f"{api.name} request of {len(frame)} bytes; only Produce may be so large")
        position = skip_header_tags(frame, header.end) if endpoint.flexible else header.end
        context = Context(self, api, endpoint.version, header.correlation_id, header.client_id, self._slice_began)
        bill = None
        if (self._shared.known_quotas.limits_clients or self._meter.quota is not None) and not self._is_stranger:
            bill, began = self._meter.bill(context), thread_time()
        if len(frame) > large.LARGE_FRAME and large.is_large(key, len(frame)):
            answer: Answer = large.handle(endpoint, bytes(frame), position, context, self._shared.large_requests)
        else:
            request, _ = endpoint.decode(frame, position, large.MAX_OF.get(key, large.MAX_ELEMENTS))
            answer = endpoint.handle(context, request)
        if bill is not None:
            self._meter.handled(bill, context, len(frame), thread_time() - began, has_answer=answer is not None)
        self._take_answer(answer, endpoint, context)
        return True

    def _dispatch_bare(self, frame: bytes | memoryview) -> bool:
        """Handle a SASL token without a request around it, as after SaslHandshake version 0."""
        endpoint = self._shared.bare
        if self._answers.holds(endpoint.api):
            self._held = endpoint
            return False
        context = Context(self, endpoint.api, endpoint.version, 0, None, self._slice_began)
        request, _ = endpoint.decode(frame, 0, large.MAX_ELEMENTS)
        self._take_answer(endpoint.handle(context, request), endpoint, context)
        return True

    def _take_answer(self, answer: Answer, endpoint: Endpoint, context: Context) -> None:
        """Queue a handler's answer."""
        if isinstance(answer, Message):
            self._answers.add(endpoint.encode(answer, context))
        elif answer is not None:
            if not isinstance(answer, DelayedResponse):
                answer = Coroutine(answer, endpoint, context, self._start, self._shared.large_requests)
            answer.on_finish, answer.on_error = self._completed, self._fail
            if not answer.applied:
                answer.on_applied = self._completed
            self._answers.add_later(answer, endpoint, context)

    # --- memory for large requests ------------------------------------------------------------------------------------

    def _take_buffer(self, length: int) -> None:
        """Receive the wanted frame into a buffer of its own. Its bytes so far count, even beyond the budget."""
        memory = self._shared.memory
        self._budget = memory.strangers if self._is_stranger else memory.budget_of(length)
        self._holding = Holding(self.client, length, is_first=self._is_new)  # from here on `close` gives it back
        self._framing.take_buffer(self._shared.buffers.take(length))
        self._budget.took(self._holding, self._framing.received_bytes)
        self._frame_timer.begin(trio.current_time())

    async def _wait_for_memory(self, holding: Holding) -> None:
        await self._budget.wait(holding)
        if self.state is State.MEMORY:  # else it was closed in the same pass
            self.last_active = trio.current_time()
            self._enter(State.READS)

    def _let_go_of(self, frame: bytes | memoryview, holding: Holding) -> None:
        """Release a large frame after it was handled; its handler may still use it for a while."""
        assert isinstance(frame, memoryview)
        self._holding = None
        budget, last = self._budget, self._answers.last_later
        # A coroutine has copied what it needs.
        if last is None or last.applied or isinstance(last, Coroutine):
            self._give_back(frame, budget, holding)
            return

        def applied() -> None:
            self._give_back(frame, budget, holding)
            self._completed()

        last.on_applied = applied

    def _give_back(self, frame: memoryview, budget: ByteBudget, holding: Holding) -> None:
        self._shared.buffers.give_back(frame)
        budget.release(holding)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _completed(self) -> None:
        """A delayed answer is ready, or its request has had its effects."""
        self._shared.turn.soon(self._send_soon)

    def _send_soon(self) -> None:
        """Call `_send` from the task that completed an answer: an error ends this connection, not that task."""
        try:
            self._send()
        except Exception as error:
            self._fail(error)

    def _send(self) -> None:
        """Send ready answers, in order; if that must wait, a task does it. Then read on, if allowed."""
        if self.state is State.CLOSED:
            return
        if not self._sender_runs:
            left = self._send_ready()
            if left is not None:
                self._sender_runs = True
                self._start(self._send_rest, left)
            elif self._ends and not self._answers.queue:
                self.close()
                return
        state = self.state
        if state is not State.READS and state in WAITS:
            self._read_on()

    def _send_ready(self) -> SizedChunk | None:
        """Send ready answers; gives the chunk that must wait, None if there is none."""
        if self._meter.quota is None:
            left = self._transport.send(self._answers.take())
        else:
            left = self._meter.run(lambda: self._transport.send(self._answers.take()))
        self._answers.sent(left)
        if self._muted_until:
            self._mute()
        return left[0] if left else None

    async def _send_rest(self, left: SizedChunk | None) -> None:
        """A task that sends while the socket is full or log data is not in memory."""
        while left is not None:
            await self._transport.until_sendable(left)
            if self.state is State.CLOSED:
                return
            self.last_active = trio.current_time()
            left = self._send_ready()
        self._sender_runs = False
        self._send()
