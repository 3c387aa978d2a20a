"""Memory for large requests: buffers that are reused, and a bound on the bytes that all connections hold together.

A frame counts with the bytes received, not with the bytes announced. The rule:

1. Small and large frames have a budget each: a quarter and three quarters of `queued.max.request.bytes`. Frames of
   clients that have not logged in yet have a small separate budget.
2. A client may receive as long as it holds no more of a budget than it leaves free (`groupcoord.shares`).
3. Bytes that it may not receive stay in the socket, and the connection waits. Of the waiting connections, those that
   have had a request handled go first, and of these the frame that lacks the fewest bytes.
4. One frame at a time is outside the budget, until it is complete and handled. So one frame can always finish, and the
   bound is the budget plus one frame.
5. A connection whose memory others wait for must receive: if its frame makes no progress, the connection is closed
   (`broker.net.connections`).

A frame's length is known only when its first bytes have come, together with the rest of that recv. So while more than
half of a budget is used, frames begin with small recvs.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable

import trio

from barnabas.groupcoord.shares import Shares

# Requests up to this size never wait for larger ones.
SMALL_REQUEST = 1 << 20
# A frame that may receive less than this, and less than it lacks, waits until it may receive more.
STEP = 256 << 10
# The budget of clients that have not logged in yet.
STRANGERS_BYTES = 8 << 20


class FrameBuffers:
    """Reusable buffers for large frames. Fresh memory costs a page fault for every 4 KiB, as much as receiving.

    A frame may be given back when it has been handled: only the record data of Produce are views into it, and those
    are in the log by then.
    """

    SIZES = tuple(1 << bits for bits in range(17, 23))  # 128 KiB to 4 MiB
    KEPT_BYTES = 16 << 20

    def __init__(self) -> None:
        self._free: dict[int, list[mmap.mmap]] = {size: [] for size in self.SIZES}
        self._kept = 0

    def take(self, length: int) -> memoryview:
        """A buffer of this length, with arbitrary content."""
        for size in self.SIZES:
            if length <= size:
                free = self._free[size]
                if free:
                    self._kept -= size
                return memoryview(free.pop() if free else _untouched(size))[:length]
        return memoryview(_untouched(length))

    def give_back(self, frame: memoryview) -> None:
        """Keep the buffer for the next frame, if there is room."""
        buffer = frame.obj
        assert isinstance(buffer, mmap.mmap)
        size = len(buffer)
        if size in self._free and self._kept + size <= self.KEPT_BYTES:
            self._kept += size
            self._free[size].append(buffer)


def _untouched(size: int) -> mmap.mmap:
    """Memory that costs nothing until it is written to, and then one page for every 4 KiB."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # on Linux, where eight bytes may cost 2 MiB without it
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory


class Holding:
    """The bytes of a budget that one frame holds, at first none. `is_first`: it is its connection's first frame."""

    __slots__ = ("bytes", "client", "is_first", "length")

    def __init__(self, client: str, length: int, *, is_first: bool = False) -> None:
        self.client, self.length, self.is_first = client, length, is_first
        self.bytes = 0

    @property
    def missing(self) -> int:
        return self.length - self.bytes


class ByteBudget:
    """Bytes that the frames of all connections may hold together; see the rule above."""

    def __init__(self, total: int, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called whenever the use changes."""
        self._shares = Shares(total)
        self._changed = changed
        self._outside: Holding | None = None  # the frame outside the budget
        self._waiting: dict[Holding, trio.Event] = {}

    @property
    def total(self) -> int:
        return self._shares.total

    @property
    def free(self) -> int:
        return self._shares.free

    @property
    def is_short(self) -> bool:
        """Whether more than half of the budget is used."""
        return self._shares.free < self._shares.used

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def allowed(self, holding: Holding) -> int:
        """How many bytes a frame may receive now; 0 if it has to `wait`."""
        missing = holding.missing
        if holding is self._outside:
            return missing
        spare = self._shares.spare(holding.client)
        return min(spare, missing) if spare >= min(missing, STEP) else 0

    def took(self, holding: Holding, size: int) -> None:
        """Note that a frame has received this many bytes."""
        holding.bytes += size
        if holding is not self._outside:
            self._shares.take(holding.client, size)
            self._changed()

    async def wait(self, holding: Holding) -> None:
        """Wait until a frame is allowed to receive. Others may be quicker, so it must ask again."""
        event = self._waiting[holding] = trio.Event()
        self._let_in()
        try:
            await event.wait()
        finally:
            self._waiting.pop(holding, None)

    def release(self, holding: Holding) -> None:
        """Free all that a frame holds: it has been handled, or will not be."""
        self._waiting.pop(holding, None)
        if holding is self._outside:
            self._outside = None
        else:
            self._shares.take(holding.client, -holding.bytes)
            self._changed()
        holding.bytes = 0
        self._let_in()

    def _let_in(self) -> None:
        if not self._waiting:
            return
        room = self.free
        for holding in sorted(self._waiting, key=lambda each: (each.is_first, each.missing)):
            least = min(holding.missing, STEP)
            if least <= room and least <= self._shares.spare(holding.client):
                room -= least
            elif self._outside is None:
                self._outside = holding
                self._shares.take(holding.client, -holding.bytes)
                self._changed()
                room += holding.bytes
            else:
                continue
            self._waiting.pop(holding).set()


class RequestMemory:
    """The budgets of small frames, of large frames, and of strangers' frames."""

    def __init__(self, total: int, small: int = SMALL_REQUEST) -> None:
        #: Whether one of the budgets is short; read before each recv.
        self.is_short = False
        self.small = ByteBudget(total // 4, self._changed)
        self.large = ByteBudget(total - total // 4, self._changed)
        self.strangers = ByteBudget(min(total // 16, STRANGERS_BYTES))
        self._small = min(small, self.small.total)

    def _changed(self) -> None:
        self.is_short = self.small.is_short or self.large.is_short

    def budget_of(self, length: int) -> ByteBudget:
        """The budget for a frame of this length."""
        return self.small if length <= self._small else self.large
