"""How far readers may see: the high watermark, with its place in the log, and the last stable offset below it."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.storage.segment import Segment

NONE_OPEN = 1 << 63


class Undecided:
    """The transactions whose outcome readers do not know yet: open ones, and those whose marker they do not see."""

    __slots__ = ("_marker_of", "first")

    def __init__(self) -> None:
        #: Where the oldest one begins; NONE_OPEN where there is none.
        self.first = NONE_OPEN
        #: By where they begin, in that order: the offset of the marker, NONE_OPEN as long as there is none.
        self._marker_of: dict[int, int] = {}

    def begin(self, first_offset: int) -> None:
        """A transaction begins, later in the log than all others."""
        self._marker_of[first_offset] = NONE_OPEN
        if self.first == NONE_OPEN:
            self.first = first_offset

    def end(self, first_offset: int, marker: int) -> None:
        """The marker of the transaction that begins there is written at the offset `marker`."""
        self._marker_of[first_offset] = marker

    def open(self) -> Iterator[int]:
        """Where those without a marker begin, the oldest first."""
        return (first for first, marker in self._marker_of.items() if marker == NONE_OPEN)

    def clear(self) -> None:
        self._marker_of.clear()
        self.first = NONE_OPEN

    def settle(self, high_watermark: int) -> None:
        """Readers see everything below this offset: forget what is decided for them."""
        while self.first != NONE_OPEN and self._marker_of[self.first] < high_watermark:
            del self._marker_of[self.first]
            self.first = next(iter(self._marker_of), NONE_OPEN)


class Watermarks:
    """Invariant: `last_stable_offset <= high_watermark`; they differ only while a transaction is undecided."""

    __slots__ = ("_undecided", "high_watermark", "last_stable_offset", "position", "segment")

    def __init__(self, offset: int, segment: Segment, position: int, undecided: Undecided) -> None:
        self._undecided = undecided
        self.advance(offset, segment, position)

    def advance(self, offset: int, segment: Segment, position: int) -> None:
        """Everything below `offset` may be seen: the batch with it begins at `position` of `segment`."""
        self.high_watermark = offset
        self.segment = segment
        self.position = position
        undecided = self._undecided
        if offset > undecided.first:
            undecided.settle(offset)
        first = undecided.first
        self.last_stable_offset = offset if offset < first else first
