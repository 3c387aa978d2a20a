"""How long the event loop is held: from when it wakes until it would wait again.

While it is held, nobody else is served. The longest hold is what a client can meet at worst. The poller, which stands
at both ends of a pass, measures.
"""

from __future__ import annotations

from bisect import bisect_left

from barnabas.broker.metrics.measures import Histogram


class Holds:
    """How often the event loop was held for how long."""

    def __init__(self) -> None:
        self.histogram = Histogram()
        #: Seconds of the longest one.
        self.longest = 0.0

    def held(self, seconds: float) -> None:
        """It was held for so long. Called in each pass of the event loop."""
        histogram = self.histogram
        histogram.counts[bisect_left(histogram.bounds, seconds)] += 1
        histogram.total += seconds
        if seconds > self.longest:
            self.longest = seconds
