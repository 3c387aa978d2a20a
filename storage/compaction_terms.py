"""The terms of a compaction between the broker and a vnode: its limits, how dirty the log is, and what was done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from barnabas.storage.pace import FULL_SPEED

#: How often a thread that waits for its bytes checks whether the limit has changed.
_LOOK_SECONDS = 1.0
_LEAST_WAIT_SECONDS = 0.001


class Throttle:
    """Limits the bytes per second of all threads that share it. Reads and writes count. The limit may change at any
    time.
    """

    def __init__(
        self, limit: Callable[[], float] = lambda: FULL_SPEED, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit, self._clock = limit, clock
        self._lock = threading.Lock()
        self._asked: float = 0
        self._given: float = 0
        self._given_at = clock()

    def spend(self, count: int, wait: Callable[[float], object]) -> None:
        """Return when `count` more bytes are within the limit. `wait` waits for some seconds; if it returns true, this
        returns at once.
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
        """Add the bytes for the time that has passed; gives the current limit. Unused bytes are not saved up."""
        now, limit = self._clock(), self._limit()
        self._given = min(self._asked, self._given + (now - self._given_at) * limit)
        self._given_at = now
        return limit


class CompactionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that a compaction may use: `log.cleaner.*`."""

    map_bytes: int = 128 << 20
    load_factor: float = 0.9
    read_bytes: int = 512 << 10
    throttle: Throttle = msgspec.field(default_factory=Throttle)


class Need(NamedTuple):
    """How much of a log can be cleaned. `must` says that `max.compaction.lag.ms` requires it."""

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
    #: Progress: bytes read so far, of all that will be read.
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
