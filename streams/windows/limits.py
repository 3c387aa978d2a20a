"""Limits how much streams read and write: a stream that is slowed down lags, and keeps nothing in memory.

A batch reads at most `MAX_BATCH_BYTES` of the source, and the next batch is planned only when its results are written.
So a slow writer slows down the reader, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.wire.aliases import TopicPartition

#: The most bytes of the source in one batch.
MAX_BATCH_BYTES = 64 << 20
#: The same for windows that records open and close: everything that a batch reads may have to wait in the state.
MAX_ROWS_BATCH_BYTES = 16 << 20
#: The most bytes that an operator of ours keeps for one part of the keys: a worker holds them while they change.
MAX_PART_BYTES = 128 << 20
#: RocksDB's memory for the states of all queries together.
MAX_STATE_MEMORY_MB = 128
#: The largest table that a stream is joined with, in each worker.
MAX_TABLE_BYTES = 128 << 20
#: The longest delay of the writer in one batch, as its transaction must end in time.
MAX_HOLD_SECONDS = 60.0


class Limits(NamedTuple):
    """The limits of each query; 0 for none."""

    writes_per_second: int = 50
    #: For each partition that is written.
    bytes_per_second: int = 2 << 20
    source_bytes_per_second: int = 0


class Pace:
    """Slows a writer down, across batches."""

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limits, self._clock, self._sleep = limits, clock, sleep
        self._next_write = 0.0
        self._next: dict[TopicPartition, float] = {}
        self._held = 0.0

    def begin(self) -> None:
        """A batch begins."""
        self._held = 0.0

    def wait(self, sizes: Mapping[TopicPartition, int]) -> None:
        """Return when one more request, with this many bytes for each partition, may be sent."""
        writes, rate, _ = self._limits
        now = self._clock()
        at = max([self._next_write, *(self._next.get(place, 0.0) for place in sizes)])
        held = min(max(at - now, 0.0), MAX_HOLD_SECONDS - self._held)
        if held > 0:
            self._sleep(held)
            self._held += held
            now = self._clock()
        if writes:
            self._next_write = now + 1 / writes
        if rate:
            self._next.update({place: now + size / rate for place, size in sizes.items()})
