"""Answers that come later. A connection waits for all of them in the same way, however they are completed.

Most are completed by a callback (an fsync, a high watermark that moves, a rebalance), which costs no task switch. If a
handler is a coroutine, `Coroutine` wraps it as such an answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from barnabas.wire.types import Message, SizedChunk

if TYPE_CHECKING:
    from barnabas.broker.net.large import LargeResponse
    from barnabas.broker.registry import Context, Endpoint
    from barnabas.broker.workers import Turns


class DelayedResponse:
    """An answer that is completed with `finish`, or that its connection gives up with `abandon`."""

    __slots__ = ("applied", "finished", "message", "on_applied", "on_error", "on_finish")

    def __init__(self, *, applied: bool = True) -> None:
        """`applied` says that the request has had its effects already; only its answer is missing."""
        self.applied = applied
        self.finished = False
        self.message: Message | None = None
        self.on_applied: Callable[[], None] | None = None
        self.on_finish: Callable[[], None] | None = None
        self.on_error: Callable[[Exception], None] | None = None

    def begin(self) -> None:
        """All answers before this one were sent. May be called several times."""

    def apply(self) -> None:
        """The request has had its effects, and no longer needs its frame."""
        self.applied = True
        if self.on_applied is not None:
            self.on_applied()

    def finish(self, message: Message | None) -> None:
        """Set the answer, None if nothing is to be sent; notifies the waiting connection."""
        self.message, self.finished = message, True
        if self.on_finish is not None:
            self.on_finish()

    def fail(self, error: Exception) -> None:
        """The answer cannot be made: this ends its own connection, and no other."""
        if self.on_error is not None:
            self.on_error(error)

    def encoded(self, endpoint: Endpoint, context: Context) -> list[SizedChunk]:
        """The finished answer, encoded; empty for a request that gets none."""
        return [] if self.message is None else endpoint.encode(self.message, context)

    def abandon(self) -> None:
        """Nobody waits any more: cancel the work that would have completed it."""


class Coroutine(DelayedResponse):
    """The answer of a handler that is a coroutine. It begins when the earlier answers were sent.

    So a connection has at most one such task at a time, however many of these requests its client pipelines.
    """

    __slots__ = ("_begun", "_chunks", "_context", "_endpoint", "_start", "_turns", "_work")

    def __init__(
        self,
        work: Awaitable[Message | LargeResponse],
        endpoint: Endpoint,
        context: Context,
        start: Callable[[Callable[[], Awaitable[None]]], None],
        turns: Turns,
    ) -> None:
        """`start` runs a task that ends with the connection; a thread of `turns` encodes a `LargeResponse`."""
        super().__init__(applied=False)
        self._work: Any = work
        self._endpoint, self._context = endpoint, context
        self._start, self._turns = start, turns
        self._begun = False
        self._chunks: list[SizedChunk] = []

    def begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._start(self._run)

    async def _run(self) -> None:
        work, self._work = self._work, None
        if work is None:  # abandoned before the task ran
            return
        answer = await self._context.paid_steps(work)
        if isinstance(answer, Message):
            self._chunks = self._endpoint.encode(answer, self._context)
        else:
            self._chunks = await answer.encoded(self._endpoint, self._context, self._turns)
        self.applied = True
        self.finish(None)

    def encoded(self, endpoint: Endpoint, context: Context) -> list[SizedChunk]:
        return self._chunks

    def abandon(self) -> None:
        if self._work is not None and hasattr(self._work, "close"):
            self._work.close()  # a coroutine that never ran
        self._work = None
