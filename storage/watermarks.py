"""How far readers may see: the high watermark, with its place in the log, and the last stable offset below it."""

from __future__ import annotations

from barnabas.storage.segment import Segment

_NONE_OPEN = 1 << 63


class Watermarks:
    """Invariant: `last_stable_offset <= high_watermark`; they differ only while a transaction is open."""

    __slots__ = ("_first_open", "high_watermark", "last_stable_offset", "position", "segment")

    def __init__(self, offset: int, segment: Segment, position: int) -> None:
        self._first_open = _NONE_OPEN
        self.advance(offset, segment, position)

    def advance(self, offset: int, segment: Segment, position: int) -> None:
        """Everything below `offset` may be seen: the batch with it begins at `position` of `segment`."""
        self.high_watermark = offset
        self.segment = segment
        self.position = position
        first = self._first_open
        self.last_stable_offset = offset if offset < first else first

    def hold_stable(self, first_open: int | None) -> None:
        """The oldest open transaction begins at this offset; None when none is open."""
        self._first_open = _NONE_OPEN if first_open is None else first_open
        self.last_stable_offset = min(self.high_watermark, self._first_open)
