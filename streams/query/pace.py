"""How much of its source a query reads in a tick, so that ticks stay short whatever a record costs."""

from __future__ import annotations

from collections.abc import Iterable

#: How long a tick should take: short enough that other queries get their turn, and a kill makes little be repeated.
TICK_SECONDS = 2.0
# The least is a batch of records that decompress to a thousand times their size.
FIRST_BYTES, MIN_BYTES, MAX_BYTES = 32 << 20, 1 << 10, 512 << 20
#: The most rows in an Arrow batch.
MAX_ROWS = 4096
# How long the first run of a job may take in addition: workers start, and code is compiled.
_COLD_SECONDS = 2.0
_MOST_GROWTH, _SHRINK = 4, 64
# After this many ticks without oversized rows, twice as many rows are tried again.
_GOOD_TICKS = 32


class Pace:
    """Learns from ticks, for each query."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}
        self._rows: dict[str, tuple[int, int]] = {}  # rows that fit an Arrow batch, and good ticks since then

    def rows(self, topics: Iterable[str]) -> int:
        """The most rows in an Arrow batch of the next tick."""
        return min(self._rows.get(topic, (MAX_ROWS, 0))[0] for topic in topics)

    def dense(self, topics: Iterable[str], rows: int) -> None:
        """More rows than this have turned out to be too large together."""
        for topic in topics:
            self._rows[topic] = rows, 0

    def most(self, topics: Iterable[str]) -> int:
        """The bytes of log for the next tick of queries that share one."""
        return min(self._bytes.get(topic, FIRST_BYTES) for topic in topics)

    def shrink(self, topics: Iterable[str], size: int) -> None:
        """A tick of `size` bytes took too long.

        If a backlog decompresses to a thousand times its size, all of it may have been much less than the limit.
        """
        for topic in topics:
            self._bytes[topic] = min(self._bytes.get(topic, FIRST_BYTES), size) // _SHRINK

    def learn(self, topics: Iterable[str], size: int, seconds: float, *, cold: bool = False) -> None:
        """This many bytes took this long; `cold` if it was the first tick of a job."""
        if cold:
            seconds = max(seconds - _COLD_SECONDS, seconds / 10)
        for topic in topics:
            if topic in self._rows:
                rows, good = self._rows[topic]
                self._rows[topic] = (rows, good + 1) if good < _GOOD_TICKS else (min(2 * rows, MAX_ROWS), 0)
            most = self._bytes.get(topic, FIRST_BYTES)
            if seconds > TICK_SECONDS or size > most // 2:  # a small tick says little about a large one
                wanted = int(size * TICK_SECONDS / seconds)
                self._bytes[topic] = max(MIN_BYTES, min(wanted, _MOST_GROWTH * most, MAX_BYTES))
