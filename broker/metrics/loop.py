"""How long the event loop is held: from when it wakes until it would wait again.

While it is held, no other client is served. The longest hold is the worst case for a client. The poller measures, as it
runs at both ends of a pass.
"""

from __future__ import annotations

from bisect import bisect_left

from barnabas.broker.metrics.measures import Histogram


class Holds:
    """A histogram of how long the event loop was held."""

    def __init__(self) -> None:
        self.histogram = Histogram()
        #: Seconds of the longest one.
        self.longest = 0.0

    def held(self, seconds: float) -> None:
        """Record one hold. Called in each pass of the event loop."""
        histogram = self.histogram
        histogram.counts[bisect_left(histogram.bounds, seconds)] += 1
        histogram.total += seconds
        if seconds > self.longest:
            self.longest = seconds
