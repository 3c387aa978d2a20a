"""How far readers may see: the high watermark, with its place in the log, and the last stable offset below it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator

from barnabas.storage.segment import Segment

NONE_OPEN = 1 << 63


class Undecided:
    """The transactions whose outcome readers do not know yet: open ones, and those whose marker they do not see.

    Every call takes a constant time, on average over all calls (`settle`: over the markers that come into sight): a
    transaction that is decided is forgotten when its marker is seen, however long others before it stay open.
    """

    __slots__ = ("_ended", "_open", "_seen", "first")

    def __init__(self) -> None:
        #: Where the oldest one begins; NONE_OPEN where there is none.
        self.first = NONE_OPEN
        #: Where those without a marker begin, ascending. A plain dict is slow to find its first key after deletions.
        self._open: OrderedDict[int, None] = OrderedDict()
        #: (marker, where its transaction begins) of those that are decided and not seen, both ascending: a transaction
        #: that begins later and is seen earlier than another one never decides what is `first`.
        self._ended: deque[tuple[int, int]] = deque()
        #: Readers see everything below this offset. All, until there are readers.
        self._seen = NONE_OPEN

    def begin(self, first_offset: int) -> None:
        """A transaction begins, later in the log than all others."""
        self._open[first_offset] = None
        if self.first == NONE_OPEN:
            self.first = first_offset

    def end(self, first_offset: int, marker: int) -> None:
        """The marker of the open transaction that begins there is written at the offset `marker`, later than all."""
        del self._open[first_offset]
        if marker >= self._seen:
            ended = self._ended
            while ended and ended[-1][1] > first_offset:
                ended.pop()
            ended.append((marker, first_offset))
        elif self.first == first_offset:
            self._find_first()

    def open(self) -> Iterator[int]:
        """Where those without a marker begin, the oldest first."""
        return iter(self._open)

    def clear(self) -> None:
        self._open.clear()
        self._ended.clear()
        self.first = self._seen = NONE_OPEN

    def settle(self, high_watermark: int) -> None:
        """Readers see everything below this offset: forget what is decided for them."""
        self._seen = high_watermark
        ended = self._ended
        while ended and ended[0][0] < high_watermark:
            ended.popleft()
        self._find_first()

    def _find_first(self) -> None:
        self.first = next(iter(self._open), NONE_OPEN)
        if self._ended:
            self.first = min(self.first, self._ended[0][1])


class Watermarks:
    """Invariant: `last_stable_offset <= high_watermark`; they differ only while a transaction is undecided."""

    __slots__ = ("_undecided", "high_watermark", "last_stable_offset", "position", "segment")

    def __init__(self, offset: int, segment: Segment, position: int, undecided: Undecided) -> None:
        self._undecided = undecided
        undecided.settle(offset)
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
