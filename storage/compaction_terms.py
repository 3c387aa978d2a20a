"""What the broker and a vnode speak of when a log is compacted: limits, how dirty it is, and what was done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec


class Throttle:
    """Bytes per second of all threads that share it; read and written bytes count."""

    def __init__(self, bytes_per_second: float = float("inf")) -> None:
        self.bytes_per_second = bytes_per_second
        self._lock = threading.Lock()
        self._free_at = 0.0

    def spend(self, count: int, wait: Callable[[float], object]) -> None:
        """`wait` is called with the seconds until so many bytes are within the limit."""
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + count / self.bytes_per_second
            delay = self._free_at - now
        if delay > 0.001:
            wait(delay)


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
