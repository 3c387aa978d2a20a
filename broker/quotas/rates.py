"""Rates of events: a rate over windows, and a token bucket. No clock: times are seconds that only grow.

Both give a throttle time: for how long nothing more should come, so that the rate is back at its limit.

Source: KIP-13 (windows), KIP-599 (token bucket); the arithmetic is that of Apache Kafka's metrics.
"""

from __future__ import annotations

from typing import NamedTuple


class Windows(NamedTuple):
    """How many windows a rate looks back over, and how many seconds each takes."""

    number: int
    seconds: float

    @property
    def span(self) -> float:
        """The seconds without an event after which a rate is 0."""
        return self.number * self.seconds


class _Window:
    __slots__ = ("begin", "last", "total")

    def __init__(self, now: float) -> None:
        self.begin = self.last = now
        self.total = 0.0


class Rate:
    """The amount recorded in the last windows, per second."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: list[_Window] = []  # the oldest first

    def record(self, amount: float, now: float, windows: Windows) -> None:
        """Record an amount; a negative one is taken back."""
        kept = self._windows
        if not kept or now - kept[-1].begin >= windows.seconds:
            if len(kept) == windows.number:
                del kept[0]
            kept.append(_Window(now))
        kept[-1].total += amount
        kept[-1].last = now

    def total(self, now: float, windows: Windows) -> float:
        """The amount recorded in all windows."""
        kept = self._windows
        if kept and now - kept[0].last >= windows.span:
            kept[:] = [window for window in kept if now - window.last < windows.span]
        total = 0.0
        for window in kept:
            total += window.total
        return total

    def throttle(self, limit: float, now: float, windows: Windows) -> float:
        """Seconds until the rate is no more than the limit again, if nothing more comes; 0 if it is not above it."""
        total = self.total(now, windows)
        if not self._windows:
            return 0.0
        elapsed = _elapsed(now - self._windows[0].begin, windows)
        return max(0.0, total / limit - elapsed)


def _elapsed(elapsed: float, windows: Windows) -> float:
    """The time over which the rate is taken: windows that did not exist yet count as empty, except the last."""
    missing = windows.number - 1 - int(elapsed / windows.seconds)
    if missing > 0:
        elapsed += missing * windows.seconds
    return max(elapsed, 0.001)


class TokenBucket:
    """Tokens come at a steady rate, up to the amount of all windows; taking more than there are leaves a debt."""

    __slots__ = ("_at", "_tokens")

    def __init__(self) -> None:
        self._tokens = 0.0
        self._at: float | None = None  # None: full

    def _refill(self, limit: float, now: float, windows: Windows) -> None:
        full = limit * windows.span
        self._tokens = full if self._at is None else min(full, self._tokens + limit * (now - self._at))
        self._at = now

    def record(self, amount: float, limit: float, now: float, windows: Windows) -> None:
        """Take tokens, even if there are not enough."""
        self._refill(limit, now, windows)
        self._tokens = min(limit * windows.span, self._tokens - amount)

    def throttle(self, limit: float, now: float, windows: Windows) -> float:
        """Seconds until the debt is paid; 0 if there is none."""
        self._refill(limit, now, windows)
        return max(0.0, -self._tokens / limit)
