"""What the broker and a vnode speak of when a log is compacted: limits, how dirty it is, and what was done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from barnabas.storage.pace import FULL_SPEED

#: A thread that waits for its bytes looks this often whether the limit has changed.
_LOOK_SECONDS = 1.0
_LEAST_WAIT_SECONDS = 0.001


class Throttle:
    """Bytes per second of all threads that share it; read and written bytes count. The limit may change at any time."""

    def __init__(
        self, limit: Callable[[], float] = lambda: FULL_SPEED, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit, self._clock = limit, clock
        self._lock = threading.Lock()
        self._asked: float = 0
        self._given: float = 0
        self._given_at = clock()

    def spend(self, count: int, wait: Callable[[float], object]) -> None:
        """Return when so many bytes are within the limit. `wait` waits for seconds; if it returns true, the wait is
        over.
        """
        with self._lock:
            self._give()
            self._asked += count
            upto = self._asked
        while (seconds := self._seconds_until(upto)) > _LEAST_WAIT_SECONDS:
            if wait(min(seconds, _LOOK_SECONDS)):
                return

    def _seconds_until(self, upto: float) -> float:
        with self._lock:
            limit = self._give()
            return (upto - self._given) / limit

    def _give(self) -> float:
        """Give the bytes of the time that has gone by; the limit now. What nobody has asked for is not saved up."""
        now, limit = self._clock(), self._limit()
        self._given = min(self._asked, self._given + (now - self._given_at) * limit)
        self._given_at = now
        return limit


class CompactionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction may use: `log.cleaner.*`."""

    map_bytes: int = 128 << 20
    load_factor: float = 0.9
    read_bytes: int = 512 << 10
    throttle: Throttle = msgspec.field(default_factory=Throttle)


class Need(NamedTuple):
    """What there is to clean of a log. `must` says that `max.compaction.lag.ms` asks for it."""

    clean_bytes: int
    dirty_bytes: int
    must: bool

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0


class CompactionFigures(msgspec.Struct):
    """What a compaction has done."""

    from_offset: int
    #: The log is clean up to here.
    to_offset: int
    #: How far it is: bytes that are read, of all that will be.
    bytes_read: int = 0
    bytes_to_read: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    segments_before: int = 0
    segments_after: int = 0
    keys: int = 0
    #: Batches that could not be read and stay as they were.
    unreadable: int = 0
    seconds: float = 0.0
    #: The map was full before the end of what could be cleaned.
    is_partial: bool = False
