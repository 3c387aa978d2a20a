"""Many deadlines that are mostly moved or dropped before they are due, such as those of sessions and long polls.

Theory: a deadline holds its true time in a field; the heap holds one entry for it, at that time or earlier. Moving it
later, as a heartbeat does, writes only the field. When the entry comes up too early, it is queued again at the true
time. So a steady member costs one heap operation per session timeout, not one per heartbeat.

An entry is void after its deadline was dropped or was queued again for an earlier time. The heap is rebuilt when most
of its entries are void, so that a million abandoned long polls take no memory until their time comes.

It is a data structure without I/O: the clock is passed in, and the owner (`groupcoord.timers`) calls `fire_due` when
`next()` has come.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

NEVER = float("inf")
_FEW = 64  # the most void entries that are not swept


class Deadline:
    """An event at a given time, unless it is moved, cancelled or dropped. Made by `Deadlines.new` or `.at`."""

    __slots__ = ("_entry", "_fire", "_owner", "_queued", "at")

    def __init__(self, owner: Deadlines, fire: Callable[[], None]) -> None:
        self.at = NEVER
        self._queued = NEVER  # the time of its entry in the heap
        self._entry = 0  # the number of that entry; 0 if it has none
        self._owner = owner
        self._fire: Callable[[], None] | None = fire

    def set(self, at: float) -> None:
        """Make it due at this time, whatever was set before."""
        self.at = at
        if at < self._queued:
            self._owner._queue(self, at)

    def cancel(self) -> None:
        """Make it not due. It may be set again."""
        self.at = NEVER

    def drop(self) -> None:
        """Make it never due again, and release its callback at once."""
        self.at = NEVER
        self._fire = None
        if self._entry:
            self._entry = 0
            owner = self._owner
            owner._void += 1
            if owner._void > _FEW and owner._void > len(owner._heap) // 2:
                owner._sweep()


class Deadlines:
    """All deadlines of one owner, on one clock (monotonic seconds). Callbacks run inside the `around` context."""

    def __init__(self, clock: Callable[[], float], *, around: AbstractContextManager[None] | None = None) -> None:
        self.clock = clock
        self.on_earlier: Callable[[], None] | None = None  # called when `next()` becomes earlier
        self._around = around or nullcontext()
        self._heap: list[tuple[float, int, Deadline]] = []
        self._count = 0
        self._void = 0  # void entries in the heap

    def __len__(self) -> int:
        """The number of heap entries, including void ones not yet swept."""
        return len(self._heap)

    def new(self, fire: Callable[[], None]) -> Deadline:
        """A deadline that is not set yet. Its callback must not raise."""
        return Deadline(self, fire)

    def at(self, at: float, fire: Callable[[], None]) -> Deadline:
        """A deadline due at this time."""
        deadline = Deadline(self, fire)
        deadline.at = at
        self._queue(deadline, at)
        return deadline

    def next(self) -> float:
        """When to call `fire_due` next. Nothing may be due then, but nothing is ever overdue."""
        return self._heap[0][0] if self._heap else NEVER

    def fire_due(self) -> None:
        """Fire what is due. A deadline that a callback sets for now or earlier waits for the next call."""
        now = self.clock()
        due: list[Deadline] = []
        while self._heap and self._heap[0][0] <= now:
            _, number, deadline = heapq.heappop(self._heap)
            if number != deadline._entry:
                self._void -= 1
                continue
            deadline._queued, deadline._entry = NEVER, 0
            if deadline.at <= now:
                due.append(deadline)
            elif deadline.at < NEVER:
                self._queue(deadline, deadline.at)
        with self._around:
            for deadline in due:
                if deadline.at <= now:  # an earlier callback may have cancelled or moved it
                    deadline.at = NEVER
                    if deadline._fire is not None:
                        deadline._fire()

    def _queue(self, deadline: Deadline, at: float) -> None:
        if deadline._entry:
            self._void += 1
        self._count += 1
        deadline._queued, deadline._entry = at, self._count
        earlier = not self._heap or at < self._heap[0][0]
        heapq.heappush(self._heap, (at, self._count, deadline))
        if earlier and self.on_earlier is not None:
            self.on_earlier()

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if entry[1] == entry[2]._entry]
        heapq.heapify(self._heap)
        self._void = 0
