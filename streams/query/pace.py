"""How much of its source a query takes in a tick, so that ticks stay short whatever a record costs."""

from __future__ import annotations

from collections.abc import Iterable

#: A tick is to take about so long: then the other queries have their turn, and what a kill makes repeat is little.
TICK_SECONDS = 2.0
FIRST_BYTES, MIN_BYTES, MAX_BYTES = 32 << 20, 4 << 20, 512 << 20
# What the first run of a job may take besides: workers start, and code is compiled.
_COLD_SECONDS = 2.0
_MOST_GROWTH, _SHRINK = 4, 64


class Pace:
    """Learns from ticks, query by query."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}

    def most(self, topics: Iterable[str]) -> int:
        """The bytes of log for the next tick of queries that share one."""
        return min(self._bytes.get(topic, FIRST_BYTES) for topic in topics)

    def shrink(self, topics: Iterable[str]) -> None:
        """A tick took too long to be waited for."""
        for topic in topics:
            self._bytes[topic] = self._bytes.get(topic, FIRST_BYTES) // _SHRINK

    def learn(self, topics: Iterable[str], size: int, seconds: float, *, cold: bool = False) -> None:
        """So many bytes took so long; `cold` where it was the first tick of a job."""
        if cold:
            seconds = max(seconds - _COLD_SECONDS, seconds / 10)
        for topic in topics:
            most = self._bytes.get(topic, FIRST_BYTES)
            if seconds > TICK_SECONDS or size > most // 2:  # a small tick says little of a large one
                wanted = int(size * TICK_SECONDS / seconds)
                self._bytes[topic] = max(MIN_BYTES, min(wanted, _MOST_GROWTH * most, MAX_BYTES))
