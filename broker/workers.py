"""Work that would delay other requests: tasks that outlive a request, threads, and long loops with pauses."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, TypeVar

import trio

R = TypeVar("R")
# The most reads from disk for fetches at one time.
COLD_READS = 4
# The most produce requests whose batches are checked in threads at one time.
VALIDATIONS = 2
# How long a loop runs before other tasks have their turn.
HOLD_SECONDS = 0.002
# The most objects that are freed at once, and the most names that are sorted at once.
PIECE, SORTED_AT_ONCE = 500, 5000


#: The client's name for work of the broker itself.
NOBODY = ""


class Turns:
    """A few threads that clients use in turn: each client that waits has one job done before any has a second.

    So a client with one job need not wait for all jobs of a client with a thousand.
    """

    def __init__(self, threads: int) -> None:
        self._threads = trio.CapacityLimiter(threads)
        self._free = threads
        self._waiting: dict[str, deque[trio.Event]] = {}  # by client, in the order of their next turns

    async def run(self, client: str, call: Callable[[], R]) -> R:
        """Run a call in a thread when it is the client's turn, and return its result."""
        async with self.turn(client):
            return await trio.to_thread.run_sync(call, limiter=self._threads)

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """The client's turn lasts as long as the block, which may do other work than a call in a thread."""
        await self._begin(client)
        try:
            yield
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
            self._waiting[client] = waiting  # after all others


class Workers:
    """The tasks and threads of one broker. `nursery` is set when it starts."""

    nursery: trio.Nursery

    def __init__(self) -> None:
        self._cold_reads = Turns(COLD_READS)
        self._disk = trio.CapacityLimiter(1)
        self._validations = Turns(VALIDATIONS)

    def start(self, work: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Start a task that ends with the broker."""
        self.nursery.start_soon(work, *args)

    async def read(self, client: str, call: Callable[[], R]) -> R:
        """Run a read of log files for a client; it may have to wait for the disk."""
        return await self._cold_reads.run(client, call)

    async def disk(self, call: Callable[[], R]) -> R:
        """Run a call that waits for the disk. For rare calls: one at a time."""
        return await trio.to_thread.run_sync(call, limiter=self._disk)

    async def validate(self, client: str, call: Callable[[], R]) -> R:
        """Run a long check of a client's record batches."""
        return await self._validations.run(client, call)


class Yielder:
    """`await yielder()` between pieces of work lets other tasks run every few milliseconds."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + HOLD_SECONDS

    async def __call__(self) -> None:
        if time.perf_counter() > self._until:
            await trio.lowlevel.checkpoint()
            self._until = time.perf_counter() + HOLD_SECONDS


async def go_through(pieces: Iterable[object]) -> None:
    """Run a generator to its end. Other tasks run in between."""
    yielder = Yielder()
    for _ in pieces:
        await yielder()


async def let_go(rows: list[Any]) -> None:
    """Empty a long list in pieces: to free a hundred thousand objects at once takes some 30 ms."""
    yielder = Yielder()
    while rows:
        del rows[-PIECE:]
        await yielder()


async def in_order(names: Iterable[str]) -> list[str]:
    """`sorted(names)`, in pieces."""
    yielder, pieces = Yielder(), []
    given = iter(names)
    while piece := list(islice(given, SORTED_AT_ONCE)):
        pieces.append(sorted(piece))
        await yielder()
    if len(pieces) < 2:
        return pieces[0] if pieces else []
    found = []
    for name in heapq.merge(*pieces):
        found.append(name)
        if not len(found) % 64:
            await yielder()
    return found
