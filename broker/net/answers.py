"""The answers of one connection, which leave in the order of its requests.

An answer is ready, or it comes later (`broker.net.delayed_response`). What is ready behind one that is not waits, too.
Whether the next request may be handled while some are open is a matter of `broker.net.order`; how many may gather, of
this module.
"""

from __future__ import annotations

from collections import deque

from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.order import RequestOrder
from barnabas.broker.registry import Context, Endpoint
from barnabas.wire.types import SizedChunk

# How far a connection may run ahead of its answers: requests that wait, and bytes that the client has not read.
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
    """A queue of answers. `take` what may be sent, then say with `sent` what of it is left."""

    __slots__ = ("_order", "holds", "most_bytes", "queue", "unsent_bytes")

    def __init__(self) -> None:
        #: Each is ready, or comes later.
        self.queue: deque[_Open | list[SizedChunk]] = deque()
        self._order = RequestOrder()
        #: Whether a request to an API must wait for an earlier one of the connection.
        self.holds = self._order.holds
        #: Bytes of answers that were ready when they were added, and have not been sent.
        self.unsent_bytes = 0
        #: How many of them the client may leave unread.
        self.most_bytes = MAX_BACKLOG_BYTES

    @property
    def is_full(self) -> bool:
        """Whether there are more answers to wait for, or to send, than a connection may have."""
        return self.unsent_bytes > self.most_bytes or len(self.queue) > MAX_WAITING

    @property
    def has_room(self) -> bool:
        """Whether it is worth to read on, once it was full."""
        return len(self.queue) <= MAX_WAITING // 2 and self.unsent_bytes <= self.most_bytes // 2

    @property
    def last_later(self) -> DelayedResponse | None:
        """The answer to the last request, if it comes later."""
        last = self.queue[-1] if self.queue else None
        return last.later if isinstance(last, _Open) else None

    def add(self, chunks: list[SizedChunk]) -> None:
        """An answer that is ready."""
        for chunk in chunks:
            self.unsent_bytes += len(chunk)
        queue = self.queue
        if queue and isinstance(last := queue[-1], list):
            last += chunks
        else:
            queue.append(chunks)

    def add_later(self, later: DelayedResponse, endpoint: Endpoint, context: Context) -> None:
        """An answer that somebody completes."""
        waiting = _Open(later, endpoint, context)
        self.queue.append(waiting)
        self._order.add(waiting, endpoint.api)

    def take(self) -> list[SizedChunk]:
        """What may be sent now: all answers up to the first that is not there, which may begin."""
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
        """What `take` gave was sent, except for what is `left` of it."""
        if left:
            self.queue.appendleft(left)
        if self.queue:
            self.unsent_bytes = sum(len(chunk) for item in self.queue if isinstance(item, list) for chunk in item)
        else:
            self.unsent_bytes = 0
            self._order.forget()

    def abandon(self) -> None:
        """The client is gone: let go of what would have completed the answers."""
        queue, self.queue = self.queue, deque()
        for item in queue:
            if isinstance(item, _Open):
                later = item.later
                later.on_finish = later.on_error = None  # except for `on_applied`: it may hold a frame
                later.abandon()
