"""Many deadlines that mostly move away before they are due, as those of sessions do.

Theory: a deadline holds its true time in a field; the heap holds one entry for it, at that time or earlier. Moving it
later, which is what a heartbeat does, writes the field and nothing else. When the entry comes up too early it is
queued again at the true time. So a steady member costs one heap operation per session timeout, not one per heartbeat.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

NEVER = float("inf")


class Deadline:
    """One thing that happens at a time, unless moved or cancelled. Made by `Deadlines.new`."""

    __slots__ = ("_fire", "_owner", "_queued", "at")

    def __init__(self, owner: Deadlines, fire: Callable[[], None]) -> None:
        self.at = NEVER
        self._queued = NEVER
        self._owner = owner
        self._fire: Callable[[], None] | None = fire

    def set(self, at: float) -> None:
        """Due at this time, whatever was said before."""
        self.at = at
        if at < self._queued:
            self._owner._queue(self, at)

    def cancel(self) -> None:
        """Not due at all; may be set again."""
        self.at = NEVER

    def drop(self) -> None:
        """Never due again; what it would call is released at once."""
        self.at = NEVER
        self._fire = None


class Deadlines:
    """All deadlines of a coordinator, on one clock (monotonic seconds)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.on_earlier: Callable[[], None] | None = None  # called when `next()` has become smaller
        self._heap: list[tuple[float, int, Deadline]] = []
        self._count = 0

    def new(self, fire: Callable[[], None]) -> Deadline:
        return Deadline(self, fire)

    def next(self) -> float:
        """When `fire_due` should be called next. It may find nothing due then, never something overdue."""
        return self._heap[0][0] if self._heap else NEVER

    def fire_due(self) -> None:
        """Fire what is due. What a fired one sets for now or earlier waits for the next call."""
        now = self.clock()
        due: list[Deadline] = []
        while self._heap and self._heap[0][0] <= now:
            when, _, deadline = heapq.heappop(self._heap)
            if when != deadline._queued:
                continue  # it was queued again, for an earlier time
            deadline._queued = NEVER
            if deadline.at <= now:
                due.append(deadline)
            elif deadline.at < NEVER:
                self._queue(deadline, deadline.at)
        for deadline in due:
            if deadline.at <= now:  # one fired before it may have cancelled or moved it
                deadline.at = NEVER
                if deadline._fire is not None:
                    deadline._fire()

    def _queue(self, deadline: Deadline, at: float) -> None:
        deadline._queued = at
        self._count += 1
        earlier = not self._heap or at < self._heap[0][0]
        heapq.heappush(self._heap, (at, self._count, deadline))
        if earlier and self.on_earlier is not None:
            self.on_earlier()
