"""Memory for large requests: buffers that are used again, and a bound on what all connections hold together."""

from __future__ import annotations

from collections import deque

import trio


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
    """Bytes that all connections together may hold in unfinished large requests; who asks for more waits its turn."""

    def __init__(self, total: int) -> None:
        self.free = self.total = total
        self._queue: deque[tuple[int, trio.Event]] = deque()

    @property
    def is_waited_for(self) -> bool:
        return bool(self._queue)

    def try_acquire(self, size: int) -> bool:
        """Take `size` bytes if they are free and nobody waits for some. See `acquire`."""
        size = min(size, self.total)
        if size > self.free or self._queue:
            return False
        self.free -= size
        return True

    async def acquire(self, size: int) -> None:
        """Wait until `size` bytes are free. A request larger than the whole budget gets the whole budget."""
        if self.try_acquire(size):
            return
        size = min(size, self.total)
        event = trio.Event()
        entry = (size, event)
        self._queue.append(entry)
        try:
            await event.wait()
        except trio.Cancelled:
            if event.is_set():
                self.release(size)
            else:
                self._queue.remove(entry)
                self.release(0)  # those behind may ask for less
            raise

    def release(self, size: int) -> None:
        """Give bytes back, as many as were acquired."""
        self.free = min(self.total, self.free + min(size, self.total))
        while self._queue and self._queue[0][0] <= self.free:
            taken, event = self._queue.popleft()
            self.free -= taken
            event.set()
