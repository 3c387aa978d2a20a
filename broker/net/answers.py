"""The answers of one connection, which are sent in the order of its requests.

An answer is ready, or it comes later (`broker.net.delayed_response`). A ready answer waits for earlier ones. This
module limits how many answers may gather; `broker.net.order` decides whether the next request may be handled meanwhile.
"""

from __future__ import annotations

from collections import deque

from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.order import RequestOrder
from barnabas.broker.registry import Context, Endpoint
from barnabas.wire.types import SizedChunk

# How far a connection may run ahead of its answers: waiting requests, and bytes that the client has not read.
MAX_WAITING = 100
MAX_BACKLOG_BYTES = 1 << 20


class _Open:
    """A request whose answer comes later."""

    __slots__ = ("context", "endpoint", "later")

    def __init__(self, later: DelayedResponse, endpoint: Endpoint, context: Context) -> None:
        self.later, self.endpoint, self.context = later, endpoint, context

    @property
    def is_open(self) -> bool:
        return not self.later.finished

    @property
    def is_done(self) -> bool:
        return self.later.applied


class Answers:
    """A queue of answers. `take` gives the chunks that may be sent; then `sent` gets those that are left."""

    __slots__ = ("_order", "holds", "most_bytes", "queue", "unsent_bytes")

    def __init__(self) -> None:
        #: Each is ready, or comes later.
        self.queue: deque[_Open | list[SizedChunk]] = deque()
        self._order = RequestOrder()
        #: Whether a request to an API must wait for an earlier one of the connection.
        self.holds = self._order.holds
        #: Unsent bytes of answers that were ready when they were added.
        self.unsent_bytes = 0
        #: How many such bytes the client may leave unread.
        self.most_bytes = MAX_BACKLOG_BYTES

    @property
    def is_full(self) -> bool:
        """Whether the connection has its most answers, waiting or unsent."""
        return self.unsent_bytes > self.most_bytes or len(self.queue) > MAX_WAITING

    @property
    def has_room(self) -> bool:
        """Whether it is worth reading on after the queue was full."""
        return len(self.queue) <= MAX_WAITING // 2 and self.unsent_bytes <= self.most_bytes // 2

    @property
    def last_later(self) -> DelayedResponse | None:
        """The answer to the last request, if it comes later."""
        last = self.queue[-1] if self.queue else None
        return last.later if isinstance(last, _Open) else None

    def add(self, chunks: list[SizedChunk]) -> None:
        """Add an answer that is ready."""
        for chunk in chunks:
            self.unsent_bytes += len(chunk)
        queue = self.queue
        if queue and isinstance(last := queue[-1], list):
            last += chunks
        else:
            queue.append(chunks)

    def add_later(self, later: DelayedResponse, endpoint: Endpoint, context: Context) -> None:
        """Add an answer that comes later."""
        waiting = _Open(later, endpoint, context)
        self.queue.append(waiting)
        self._order.add(waiting, endpoint.api)

    def take(self) -> list[SizedChunk]:
        """The answers that may be sent now, up to the first that is not ready. That one may begin."""
        queue = self.queue
        ready: list[SizedChunk] = []
        while queue:
            item = queue[0]
            if isinstance(item, list):
                chunks = item
            elif item.later.finished:
                chunks = item.later.encoded(item.endpoint, item.context)
            else:
                item.later.begin()
                break
            queue.popleft()
            if ready:
                ready += chunks
            else:
                ready = chunks
        return ready

    def sent(self, left: list[SizedChunk]) -> None:
        """Everything that `take` gave was sent, except `left`."""
        if left:
            self.queue.appendleft(left)
        if self.queue:
            self.unsent_bytes = sum(len(chunk) for item in self.queue if isinstance(item, list) for chunk in item)
        else:
            self.unsent_bytes = 0
            self._order.forget()

    def abandon(self) -> None:
        """The client is gone: cancel the work that would have completed the answers."""
        queue, self.queue = self.queue, deque()
        for item in queue:
            if isinstance(item, _Open):
                later = item.later
                later.on_finish = later.on_error = None  # keep `on_applied`: it may hold a frame
                later.abandon()
