"""The wall clock, which gives records their timestamps. Deadlines use trio's own clock."""

from __future__ import annotations

import time

from barnabas.wire import portable

#: The wall clock is set, and not slewed, if it moves by more against the time that has passed.
JUMP_MS = 10_000


class Clock:
    """The time of day of this machine. Tests pass a clock of their own."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def passed_ms(self) -> int:
        """Milliseconds since the machine started, also those in which it slept where the system counts them."""
        if portable.has(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        return time.monotonic_ns() // 1_000_000


class Jumps:
    """Finds out when the clock was set: `since_last()` says by how much."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._between = self._difference()

    def _difference(self) -> int:
        return self._clock.wall_ms() - self._clock.passed_ms()

    def since_last(self) -> int:
        """Milliseconds by which the clock was set since the last call; negative for backward, 0 for not at all."""
        before, self._between = self._between, self._difference()
        jump = self._between - before
        return jump if abs(jump) > JUMP_MS else 0
