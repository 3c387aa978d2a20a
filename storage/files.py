"""Open segment files, and the slices of them that readers get.

A segment's file opens when it is first needed. `FileCache` bounds how many are open in a data directory: it drops its
reference, and the descriptor closes with the last `FileSlice` on it, so a reader never sees a descriptor reused.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections import OrderedDict
from typing import TYPE_CHECKING

from barnabas.storage import garbage
from barnabas.storage.io import Io

if TYPE_CHECKING:
    from barnabas.storage.segment import Segment

_WARM_STEP = 1024 * 1024
# On PyPy a collection takes some 30 steps, so at most a few hundred files stay open that nothing refers to.
_STEP_EVERY = 8


class OpenFile:
    """A descriptor that closes with its last reference."""

    __slots__ = ("_io", "fd")

    def __init__(self, io: Io, path: str, flags: int) -> None:
        self.fd = -1
        self._io = io
        self.fd = io.open(path, flags)

    def __del__(self) -> None:
        if self.fd >= 0:
            self._io.close(self.fd)


class FileSlice:
    """A range of a segment file: the `Slice` of a local vnode. It stays valid while it is referenced."""

    __slots__ = ("_file", "_io", "_position", "_size", "cached")

    def __init__(self, io: Io, file: OpenFile, position: int, size: int, *, cached: bool = False) -> None:
        self._io = io
        self._file = file
        self._position = position
        self._size = size
        self.cached = cached

    def send(self, sock: socket.socket) -> int:
        """Send from the file to the socket without a copy in this process."""
        return os.sendfile(sock.fileno(), self._file.fd, self._position, self._size)

    def __len__(self) -> int:
        return self._size

    def first(self, size: int) -> FileSlice:
        """The first `size` bytes of the range."""
        return FileSlice(self._io, self._file, self._position, size, cached=self.cached)

    def rest(self, sent: int) -> FileSlice:
        """What is left of the range after its first `sent` bytes."""
        return FileSlice(self._io, self._file, self._position + sent, self._size - sent, cached=self.cached)

    def look_cached(self) -> bool:
        """Whether the ends of the range are in the page cache; does not wait for the disk. Notes the answer."""
        fd, ends = self._file.fd, (self._position, self._position + self._size - 1)
        self.cached = self.cached or all(self._io.is_cached(fd, at) for at in ends)
        return self.cached

    def warm(self) -> None:
        """Read the range into the page cache. For a thread: it takes as long as the disk does."""
        for start in range(0, self._size, _WARM_STEP):
            self._io.pread(self._file.fd, min(_WARM_STEP, self._size - start), self._position + start)
        self.cached = True

    def read(self) -> bytes:
        data = self._io.pread(self._file.fd, self._size, self._position)
        while len(data) < self._size:
            more = self._io.pread(self._file.fd, self._size - len(data), self._position + len(data))
            if not more:
                raise OSError(5, "the segment file is shorter than its log")
            data += more
        return data


class FileCache:
    """Opens segment files, and keeps about `limit` of them open. It closes others by the second-chance algorithm.

    Segments with unflushed bytes stay open: an error that the kernel keeps for their descriptor must reach our fsync.
    There may be more of them than `limit`, so once found they are kept apart until `clean` is called for them.
    """

    __slots__ = ("_dirty", "_given_up", "_io", "_open", "limit", "open_logs")

    def __init__(self, io: Io, limit: int = 512) -> None:
        self._io = io
        self.limit = limit
        self._open: OrderedDict[Segment, None] = OrderedDict()
        self._dirty: set[Segment] = set()
        self._given_up = 0
        #: Logs in memory, whether their files are open or not.
        self.open_logs = 0

    def __len__(self) -> int:
        return len(self._open) + len(self._dirty)

    def get(self, segment: Segment) -> OpenFile:
        segment.used = True
        file = segment.file
        if file is None:
            file = segment.file = OpenFile(self._io, segment.path(), os.O_RDWR)
            self._open[segment] = None
            if len(self) > self.limit:
                self._evict(keep=segment)
        return file

    def forget(self, segment: Segment) -> None:
        self._open.pop(segment, None)
        self._dirty.discard(segment)
        segment.file = None
        self._given_up += 1
        if not self._given_up % _STEP_EVERY:
            garbage.step()

    def clean(self, segment: Segment) -> None:
        """A flush has taken over the segment's bytes: the segment may be closed."""
        segment.dirty = False
        if segment in self._dirty:
            self._dirty.remove(segment)
            self._open[segment] = None

    def _evict(self, keep: Segment) -> None:
        for _ in range(2 * len(self._open)):  # one round to take the second chances away, one to close
            if len(self) <= self.limit:
                return
            segment, _ = self._open.popitem(last=False)
            if segment.dirty:
                self._dirty.add(segment)
            elif segment is keep or segment.used:
                segment.used = False
                self._open[segment] = None
            else:
                self.forget(segment)
                # The vnode that owns the segment will notice a full disk; its entries wait in memory.
                with contextlib.suppress(OSError):
                    segment.drop_indexes(self._io)
