"""Closes the windows of a topic that receives no records: after MAX_DELAY, by a mark (source.py).

A mark's time is after the end of every window that can be open: records have times up to the watermark plus its delay.
Records that arrived together with a mark may be in windows that are still open after it: then another mark follows.

Windows that records open and close (row_windows.py) stay open over a mark, as it comes after the waiting records. The
state of FILL is kept, too.
Invariant: a topic without new records does not cause endless work.
"""

from __future__ import annotations

from barnabas.wire.streams.clauses import Clauses
from barnabas.wire.streams.windows import Interval, RowWindow, Session, Window


class Quiet:
    """What is known about a query's source."""

    def __init__(self, clauses: Clauses, windows: list[Window], now: float) -> None:
        """`windows` are those of all the query's streams, which share the watermark and delay."""
        self._delay, self._behind_ms = clauses.max_delay_ms / 1000, clauses.watermark_ms
        self._span_ms = max(map(_span, windows)) + (0 if clauses.join is None else clauses.join.within_ms + 1)
        self._has_state = isinstance(clauses.window, RowWindow) or clauses.fill is not None
        self._at = now
        # What the batches before this start contained is unknown.
        self._may_wait = True

    def came(self, records: int, now: float) -> None:
        """A batch had rows: this many records, and perhaps a mark."""
        self._at = now
        self._may_wait = self._may_wait or records > 0

    def mark(self, now: float, watermark: int, last_mark: int, state_rows: int) -> int | None:
        """The time of the mark to set now; None for none. Everything that has come is in."""
        if now - self._at < self._delay or self.is_over(watermark, last_mark, state_rows):
            return None
        self._at, self._may_wait = now, False
        return watermark + self._behind_ms + self._span_ms + self._behind_ms

    def is_over(self, watermark: int, last_mark: int, state_rows: int) -> bool:
        """Whether no mark will come, unless something else comes first."""
        is_open = self._may_wait if self._has_state else state_rows > 0
        # The last thing that came was a mark, and it has closed everything.
        is_closed = watermark + self._behind_ms <= last_mark and not is_open
        return not self._delay or not watermark or is_closed


def _span(window: Window) -> int:
    """How long a window may be open after its first record."""
    if isinstance(window, Interval):
        return window.length_ms
    return window.gap_ms if isinstance(window, Session) else 0
