"""The wall clock, which gives records their timestamps. Deadlines use trio's own clock."""

from __future__ import annotations

import time


class Clock:
    """The time of day of this machine. Tests pass a clock of their own."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000
