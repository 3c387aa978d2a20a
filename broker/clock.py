"""The wall clock, from outside: what records are stamped with. For deadlines there is trio's own clock."""

from __future__ import annotations

import time


class Clock:
    """The time of day of this machine. A test has one of its own."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000
