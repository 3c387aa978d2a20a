"""Calls at a later time, many of them and most given up before they are due: what the long polls of clients need.

A heap with one task for all; a call that is given up leaves its place empty, and the heap is made anew when most of it
is empty.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import trio


class Deadline:
    """A call that is to come; `cancel` gives it up."""

    __slots__ = ("_call", "_owner")

    def __init__(self, call: Callable[[], None], owner: Deadlines) -> None:
        self._call: Callable[[], None] | None = call
        self._owner = owner

    def cancel(self) -> None:
        if self._call is not None:
            self._call = None
            self._owner._given_up()

    def _meet(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


class Deadlines:
    """Calls by time on trio's clock. `run` is a task of the owner's nursery."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._numbers = itertools.count()
        self._empty = 0
        self._earlier = trio.Event()

    def __len__(self) -> int:
        return len(self._heap) - self._empty

    def at(self, time: float, call: Callable[[], None]) -> Deadline:
        """Call at `time` (seconds of trio's clock), not before. The call must not raise."""
        deadline = Deadline(call, self)
        if not self._heap or time < self._heap[0][0]:
            self._earlier.set()
        heapq.heappush(self._heap, (time, next(self._numbers), deadline))
        return deadline

    def _given_up(self) -> None:
        self._empty += 1
        if self._empty > 64 and self._empty > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if entry[2]._call is not None]
            heapq.heapify(self._heap)
            self._empty = 0

    async def run(self) -> None:
        """Make the calls when they are due, until cancelled."""
        while True:
            self._earlier = trio.Event()
            with trio.move_on_at(self._heap[0][0] if self._heap else float("inf")):
                await self._earlier.wait()
            now = trio.current_time()
            while self._heap and self._heap[0][0] <= now:
                deadline = heapq.heappop(self._heap)[2]
                if deadline._call is None:
                    self._empty -= 1
                else:
                    deadline._meet()
