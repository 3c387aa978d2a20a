"""PERIOD: windows by the clock; a record belongs to the window in which the stream reads it.

The source notes the time in its offsets: with each batch that has records, and when a period ends that may have
records. So Spark's checkpoint says when a record was read, and a repeated batch has the same times.

Invariant: times go up with each batch of records. Without new records one more time follows, which ends the period, and
then no more.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Ticks:
    """Decides when a source's batches are."""

    def __init__(self, length_ms: int, offset_ms: int, clock: Callable[[], float] = time.time) -> None:
        self._length, self._offset, self._clock = length_ms, offset_ms, clock
        self._last = -1

    def next(self, before: int, *, has_records: bool) -> int:
        """The time of the next batch; `before` is that of the last one (0 for none).

        It is `before` again if there must be no batch without records.
        """
        now = int(self._clock() * 1000)
        if has_records:
            return max(now, before + 1)
        if not self.is_over(before):
            return before
        self._last = now
        return now

    def is_over(self, before: int) -> bool:
        """Whether a period is over that may have records; `before` is the time of the last batch."""
        return bool(before) and before != self._last and int(self._clock() * 1000) >= self._end(before)

    def _end(self, at: int) -> int:
        """The end of the period that contains a time."""
        return (at - self._offset) // self._length * self._length + self._offset + self._length
