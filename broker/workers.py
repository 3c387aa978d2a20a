"""Work that would hold up everybody else: tasks that outlive a request, threads, and long loops that give way."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

R = TypeVar("R")
# Reads from disk that fetches may have under way at one time.
COLD_READS = 4
# Produce requests whose batches threads look at, at one time.
VALIDATIONS = 2
# How long a loop goes on before others have their turn.
HOLD_SECONDS = 0.002


#: Who asks where nobody does but the broker itself.
NOBODY = ""


class Turns:
    """A few threads that clients take in turn: of those that wait, each has one job done before any has a second.

    So a client with a thousand jobs stands before another one with one of them.
    """

    def __init__(self, threads: int) -> None:
        self._threads = trio.CapacityLimiter(threads)
        self._free = threads
        self._waiting: dict[str, deque[trio.Event]] = {}  # by client, in the order of their next turns

    async def run(self, client: str, call: Callable[[], R]) -> R:
        """What a call gives that a thread makes for this client."""
        await self._begin(client)
        try:
            return await trio.to_thread.run_sync(call, limiter=self._threads)
        finally:
            self._end()

    async def _begin(self, client: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn = trio.Event()
        waiting = self._waiting.setdefault(client, deque())
        waiting.append(turn)
        try:
            await turn.wait()
        except trio.Cancelled:
            if turn.is_set():
                self._end()
            else:
                waiting.remove(turn)
                if not waiting:
                    del self._waiting[client]
            raise

    def _end(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        client = next(iter(self._waiting))
        waiting = self._waiting.pop(client)
        waiting.popleft().set()
        if waiting:
            self._waiting[client] = waiting  # behind all others


class Workers:
    """The tasks and threads of one broker. `nursery` is set when it starts."""

    nursery: trio.Nursery

    def __init__(self) -> None:
        self._cold_reads = Turns(COLD_READS)
        self._disk = trio.CapacityLimiter(1)
        self._validations = Turns(VALIDATIONS)

    def start(self, work: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run a task that ends with the broker."""
        self.nursery.start_soon(work, *args)

    async def read(self, client: str, call: Callable[[], R]) -> R:
        """What a read of log files gives, for a client, that may have to wait for the disk."""
        return await self._cold_reads.run(client, call)

    async def disk(self, call: Callable[[], R]) -> R:
        """What a call gives that takes as long as the disk, of those that are rare."""
        return await trio.to_thread.run_sync(call, limiter=self._disk)

    async def validate(self, client: str, call: Callable[[], R]) -> R:
        """What a long look at record batches of a client gives."""
        return await self._validations.run(client, call)


class Yielder:
    """`await yielder()` between pieces of work: every few milliseconds the others have their turn."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + HOLD_SECONDS

    async def __call__(self) -> None:
        if time.perf_counter() > self._until:
            await trio.lowlevel.checkpoint()
            self._until = time.perf_counter() + HOLD_SECONDS
