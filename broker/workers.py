"""Work that would hold up everybody else: tasks that outlive a request, threads, and long loops that give way."""

from __future__ import annotations

import time
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


class Workers:
    """The tasks and threads of one broker. `nursery` is set when it starts."""

    nursery: trio.Nursery

    def __init__(self) -> None:
        self.cold_reads = trio.CapacityLimiter(COLD_READS)
        self._disk = trio.CapacityLimiter(1)
        self._validations = trio.CapacityLimiter(VALIDATIONS)

    def start(self, work: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run a task that ends with the broker."""
        self.nursery.start_soon(work, *args)

    async def read(self, call: Callable[[], R]) -> R:
        """What a read of log files gives that may have to wait for the disk."""
        return await trio.to_thread.run_sync(call, limiter=self.cold_reads)

    async def disk(self, call: Callable[[], R]) -> R:
        """What a call gives that takes as long as the disk, of those that are rare."""
        return await trio.to_thread.run_sync(call, limiter=self._disk)

    async def validate(self, call: Callable[[], R]) -> R:
        """What a long look at record batches gives."""
        return await trio.to_thread.run_sync(call, limiter=self._validations)


class Yielder:
    """`await yielder()` between pieces of work: every few milliseconds the others have their turn."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + HOLD_SECONDS

    async def __call__(self) -> None:
        if time.perf_counter() > self._until:
            await trio.lowlevel.checkpoint()
            self._until = time.perf_counter() + HOLD_SECONDS
