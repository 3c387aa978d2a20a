"""Numbers that are added to on the path of a request."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

#: Upper bounds in seconds: from less than a small request takes to a long poll and a slow disk.
SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Histogram:
    """How often a value was at most each bound, and above them all; and the sum of the values."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        #: By bound, not cumulative; the last one counts values above all bounds.
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """The counts in Prometheus' form: a bound, and how many values were at most that."""
        found: list[tuple[str, float]] = []
        seen = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            seen += count
            found.append((bound, seen))
        return found

    def add(self, other: Histogram) -> None:
        """Count all that another one, with the same bounds, has counted."""
        for index, count in enumerate(other.counts):
            self.counts[index] += count
        self.total += other.total


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float:
    """The value below which a share (0 to 1) of the counted values is, as exact as the bounds allow; NaN for none.

    Between two bounds the values count as spread evenly. Above the last bound the result is the last bound.
    """
    wanted = sum(counts) * share
    if not any(counts):
        return float("nan")
    seen, below = 0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and seen + count >= wanted:
            return below + (bound - below) * (wanted - seen) / count
        seen, below = seen + count, bound
    return below
