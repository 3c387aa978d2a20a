"""How long the event loop is held: from when it wakes until it would wait again.

While it is held, nobody else is served. The longest hold is what a client can meet at worst.
"""

from __future__ import annotations

import time

import trio

from barnabas.broker.metrics.measures import Histogram


class LoopMeter(trio.abc.Instrument):
    """Measures each pass of trio's event loop. Put in before the poller, which serves requests inside a pass."""

    def __init__(self) -> None:
        self.holds = Histogram()
        #: Seconds of the longest hold.
        self.longest = 0.0
        self._began: float | None = None

    def after_io_wait(self, timeout: float) -> None:
        """A pass begins."""
        self._began = time.perf_counter()

    def before_io_wait(self, timeout: float) -> None:
        """A pass ends."""
        if self._began is None:
            return
        seconds = time.perf_counter() - self._began
        self._began = None
        self.holds.observe(seconds)
        if seconds > self.longest:
            self.longest = seconds
