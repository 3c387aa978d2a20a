"""Memory for large requests: buffers that are used again, and a bound on what all connections hold together."""

from __future__ import annotations

from collections import deque

import trio

# Requests up to this size never wait for larger ones.
SMALL_REQUEST = 1 << 20


class FrameBuffers:
    """Buffers for large frames, used again: fresh memory costs a page fault for every 4 KiB, as much as receiving.

    A frame may be given back when it has been handled: of its parts only the record data of Produce are views, and
    those are in the log by then.
    """

    SIZES = tuple(1 << bits for bits in range(17, 23))  # 128 KiB to 4 MiB
    KEPT_BYTES = 16 << 20

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {size: [] for size in self.SIZES}
        self._kept = 0

    def take(self, length: int) -> memoryview:
        """A buffer of this length, with whatever was in it before."""
        for size in self.SIZES:
            if length <= size:
                free = self._free[size]
                if free:
                    self._kept -= size
                return memoryview(free.pop() if free else bytearray(size))[:length]
        return memoryview(bytearray(length))

    def give_back(self, frame: memoryview) -> None:
        """Keep the buffer for the next frame, if there is room."""
        buffer = frame.obj
        assert isinstance(buffer, bytearray)
        size = len(buffer)
        if size in self._free and self._kept + size <= self.KEPT_BYTES:
            self._kept += size
            self._free[size].append(buffer)


class ByteBudget:
    """Bytes that all connections together may hold in unfinished large requests; a request beyond that waits its turn.

    A quarter is for requests of at most `small` bytes: they never wait for large ones, which may come in slowly.
    While a larger one waits, small ones have only that quarter, so that it gets its turn, too.
    """

    def __init__(self, total: int, small: int = SMALL_REQUEST) -> None:
        self.free = self.total = total
        self._reserved = total // 4
        self._small = min(small, self._reserved)
        self._free_for_small = self._reserved
        self._waiting_small: deque[tuple[int, trio.Event]] = deque()
        self._waiting_large: deque[tuple[int, trio.Event]] = deque()

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting_small or self._waiting_large)

    def _share(self, size: int) -> int:
        """What a request of this size takes: one that is larger than the budget takes what it may have of it."""
        return size if size <= self._small else min(size, self.total - self._reserved)

    def _has_room(self, size: int) -> bool:
        if size > self._small:
            # What small requests hold of their quarter is not in the way.
            return size <= self.free - max(0, self._free_for_small)
        return size <= (self._free_for_small if self._waiting_large else self.free)

    def _take(self, size: int) -> None:
        self.free -= size
        if size <= self._small:
            self._free_for_small -= size

    def try_acquire(self, size: int) -> bool:
        """Take `size` bytes if they are free and nobody like it waits for some. See `acquire`."""
        size = self._share(min(size, self.total))
        if self._queue_of(size) or not self._has_room(size):
            return False
        self._take(size)
        return True

    async def acquire(self, size: int) -> None:
        """Wait until `size` bytes are free. A request larger than the budget gets what there is for it."""
        if self.try_acquire(size):
            return
        size = self._share(min(size, self.total))
        queue = self._queue_of(size)
        event = trio.Event()
        entry = (size, event)
        queue.append(entry)
        try:
            await event.wait()
        except trio.Cancelled:
            if event.is_set():
                self.release(size)
            else:
                queue.remove(entry)
                self._let_in()  # those behind may ask for less
            raise

    def release(self, size: int) -> None:
        """Give bytes back, as many as were acquired."""
        size = self._share(min(size, self.total))
        self.free += size
        if 0 < size <= self._small:
            self._free_for_small += size
        self._let_in()

    def _queue_of(self, size: int) -> deque[tuple[int, trio.Event]]:
        return self._waiting_small if size <= self._small else self._waiting_large

    def _let_in(self) -> None:
        for queue in (self._waiting_small, self._waiting_large):
            while queue and self._has_room(queue[0][0]):
                taken, event = queue.popleft()
                self._take(taken)
                event.set()
