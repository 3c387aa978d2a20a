"""How far readers may see: the high watermark, with its place in the log, and the last stable offset below it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator

from barnabas.storage.segment import Segment

NONE_OPEN = 1 << 63


class Undecided:
    """The transactions whose outcome readers do not know yet: open ones, and those whose marker they cannot see yet.

    Every call takes constant time on average (`settle`: per marker that becomes visible). A decided transaction is
    forgotten when its marker is visible, however long earlier transactions stay open.
    """

    __slots__ = ("_ended", "_open", "_seen", "first")

    def __init__(self) -> None:
        #: Where the oldest one begins; NONE_OPEN if there is none.
        self.first = NONE_OPEN
        #: Where transactions without a marker begin, ascending. A plain dict is slow at this after deletions.
        self._open: OrderedDict[int, None] = OrderedDict()
        #: (marker, where its transaction begins) of transactions whose marker is not visible yet, both ascending: a
        #: transaction that begins later and is visible earlier than another one never decides `first`.
        self._ended: deque[tuple[int, int]] = deque()
        #: Readers see everything below this offset; until there are readers, everything.
        self._seen = NONE_OPEN

    def begin(self, first_offset: int) -> None:
        """Note a new transaction; it begins later in the log than all others."""
        self._open[first_offset] = None
        if self.first == NONE_OPEN:
            self.first = first_offset

    def end(self, first_offset: int, marker: int) -> None:
        """Note that the open transaction that begins at `first_offset` has its marker at `marker`, later than all."""
        del self._open[first_offset]
        if marker >= self._seen:
            ended = self._ended
            while ended and ended[-1][1] > first_offset:
                ended.pop()
            ended.append((marker, first_offset))
        elif self.first == first_offset:
            self._find_first()

    def open(self) -> Iterator[int]:
        """Where the transactions without a marker begin, the oldest first."""
        return iter(self._open)

    def clear(self) -> None:
        self._open.clear()
        self._ended.clear()
        self.first = self._seen = NONE_OPEN

    def settle(self, high_watermark: int) -> None:
        """Readers now see everything below `high_watermark`: forget the transactions that are decided for them."""
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
        """Let readers see everything below `offset`; the batch at `offset` begins at `position` of `segment`."""
        self.high_watermark = offset
        self.segment = segment
        self.position = position
        undecided = self._undecided
        if offset > undecided.first:
            undecided.settle(offset)
        first = undecided.first
        self.last_stable_offset = offset if offset < first else first
