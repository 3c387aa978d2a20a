"""Decides when a query runs a batch: a batch costs some hundred milliseconds of CPU, whatever it reads.

INTERVAL windows give results only when the watermark passes the end of a window. So a batch is planned when the unread
records would move the watermark past such an end; until then they wait. Two rules bound that wait:

    size        so much waits that a batch is worth it; and a backlog is read without a pause
    pause       the batch before is so long ago. It begins with half a second and doubles with each batch that was not
                needed, up to `wait_ms`; after `wait_ms` without a record the next one is read at once

Where nothing shows beforehand whether a record gives a result (sessions, windows of records, joins, AT_ONCE, late
records that are not ignored, windows by the clock), `wait_ms` is short.

Invariant: a record waits no longer than `wait_ms` for the batch that reads it, not counting the time that batches take.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from barnabas.wire.streams.clauses import RECORD_TIME, WINDOW_CLOSE, Clauses
from barnabas.wire.streams.windows import Interval, Window

#: Waiting data is read when there is this much: a batch stays short, and its data is still in the page cache.
MOST_BYTES = 4 << 20
#: The longest wait of a record that yields no result, and of one for which that is unknown.
WAIT_MS, FRESH_MS = 10_000, 500
#: With MAX_DELAY, a record waits for at most this part of it.
_PART_OF_DELAY = 4
_LEAST_LOOK, _MOST_LOOK = 0.04, 0.25


class Rule(msgspec.Struct, frozen=True):
    """The rule for all streams of a query.

    `ends` are the ends of their windows as (step, remainder) in ms; empty if they do not tell what yields a result.
    `time` is the column with the event time; a time that is more than `ahead_ms` after the record's own does not count.
    """

    least_ms: int = 0
    wait_ms: int = 0
    delay_ms: int = 0
    ends: tuple[tuple[int, int], ...] = ()
    time: str = RECORD_TIME
    ahead_ms: int = 0

    def encode(self) -> str:
        """The value of the source's option."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def decode(text: str) -> Rule:
        """The rule that `encode` has written; an empty text makes nothing wait."""
        return msgspec.json.decode(text, type=Rule) if text else Rule()

    def next_end(self, watermark: int) -> int | None:
        """The first end of a window after the watermark."""
        return min((watermark + step - (watermark - place) % step for step, place in self.ends), default=None)


def rule_of(clauses: Clauses, windows: Iterable[Window], least_ms: int = 0) -> Rule:
    """The rule of a query. `windows` are those of all its streams.

    `least_ms` is the shortest time between two batches that read.
    """
    wait_ms = min(WAIT_MS, clauses.max_delay_ms // _PART_OF_DELAY) if clauses.max_delay_ms else WAIT_MS
    closes = clauses.trigger == WINDOW_CLOSE and not clauses.by_clock and not clauses.expired_ms
    ends = {
        (each.sliding_ms, (each.offset_ms + each.length_ms) % each.sliding_ms)
        for each in windows
        if isinstance(each, Interval)
    }
    if not closes or not ends or clauses.join is not None:
        return Rule(least_ms, min(FRESH_MS, wait_ms))
    return Rule(least_ms, wait_ms, clauses.watermark_ms, tuple(sorted(ends)), clauses.time, clauses.max_ahead_ms)


class Unread(NamedTuple):
    """The unread part of the source: its size in the log, and its newest event time if known."""

    size: int = 0
    newest: int | None = None


class Due:
    """Decides when a query's batches are planned. Clock times are in seconds."""

    def __init__(self, rule: Rule, clock: Callable[[], float] = time.monotonic) -> None:
        self._rule, self._clock = rule, clock
        self._first = min(FRESH_MS, rule.wait_ms) / 1000
        self._pause = self._first
        self._planned_at = -float("inf")
        self._came_at: float | None = None  # when the oldest waiting record came
        self._leaves = False

    def is_due(self, unread: Unread, watermark: int) -> bool:
        """Whether to plan a batch now; `watermark` is that after the last one."""
        if not unread.size:
            self._came_at = None
            return False
        now = self._clock()
        if self._came_at is None:
            self._came_at = now
        if self._leaves or unread.size >= MOST_BYTES:
            return True
        since = now - self._planned_at
        if since < self._rule.least_ms / 1000:
            return False
        return since >= self._pause or self._is_needed(unread, watermark)

    def _is_needed(self, unread: Unread, watermark: int) -> bool:
        """Whether the unread data closes a window."""
        end = self._rule.next_end(watermark)
        return end is not None and unread.newest is not None and unread.newest - self._rule.delay_ms >= end

    def planned(self, unread: Unread, watermark: int, *, leaves: bool) -> None:
        """A batch reads this data now; with `leaves`, only a part of it."""
        now, longest = self._clock(), self._rule.wait_ms / 1000
        came_at = now if self._came_at is None else self._came_at
        if came_at - self._planned_at >= longest:  # it was quiet before
            self._pause = self._first
        elif not leaves and not self._is_needed(unread, watermark):
            self._pause = min(2 * self._pause, longest)
        self._planned_at, self._came_at, self._leaves = now, None, leaves

    def holds(self) -> bool:
        """Whether a batch without records can wait for the unread data, because that is read soon."""
        return self._came_at is not None and not self._rule.ends

    def look_again(self, unread: Unread, watermark: int) -> float:
        """The number of seconds until the next look.

        Event time mostly advances with the clock, so half of the time to the window's end is early enough.
        """
        if not unread.size:
            return _LEAST_LOOK
        end = self._rule.next_end(watermark)
        left = self._planned_at + self._pause - self._clock()
        if end is not None and unread.newest is not None:
            left = min(left, (end + self._rule.delay_ms - unread.newest) / 2000)
        return min(max(left, _LEAST_LOOK), _MOST_LOOK)
