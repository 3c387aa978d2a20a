"""fdatasync by the kernel's own workers (Linux AIO, `io_submit` with IOCB_CMD_FDSYNC).

The caller continues at once; a descriptor becomes readable when a sync is done. This avoids the cost of a thread of our
own (wake-ups and the interpreter's lock), and syncs that run together share one commit of the file system's journal.
See docs/decisions/0008-fsyncs-by-the-kernel.md.

Errors are those of fdatasync: a failed write-back is reported once for each open file, to whichever call asks next.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")

# io_setup, io_destroy, io_submit, io_getevents: their numbers differ by architecture, and libc has no names for them.
_NUMBERS = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}
# struct iocb: data, key, flags, opcode, priority, descriptor, buffer, bytes, offset, reserved, flags, eventfd.
_REQUEST = struct.Struct("<QIIHhIQQqQII")
# struct io_event: data, the request's address, its result and a second one.
_EVENT = struct.Struct("<QQqq")
_FDSYNC = 3
_TELL_EVENTFD = 1
# What an eventfd is told and tells: a count of eight bytes, eventfd(2).
_ONE = struct.pack("=Q", 1)
# The most syncs in flight at once; others wait for their turn.
DEPTH = 64


class KernelSync(Generic[T]):
    """Syncs in flight, each with a token from the caller. `fileno` is readable when some are done."""

    def __init__(self) -> None:
        """Raises OSError if the system does not have this or does not allow it."""
        numbers = _NUMBERS.get(platform.machine()) if sys.maxsize > 2**32 else None
        if sys.platform != "linux" or numbers is None:
            raise OSError("no asynchronous fsync on this system")
        self._setup, self._destroy, self._submit, self._events = numbers
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.syscall.restype = ctypes.c_long
        self._eventfd: int = self._libc.eventfd(0, os.O_NONBLOCK | os.O_CLOEXEC)  # not every Python has os.eventfd
        if self._eventfd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._context = ctypes.c_ulong(0)
        try:
            self._call(self._setup, ctypes.c_long(DEPTH), ctypes.byref(self._context))
        except OSError:
            os.close(self._eventfd)
            raise
        requests = ctypes.create_string_buffer(_REQUEST.size * DEPTH)
        self._requests = memoryview(requests)  # PyPy's `struct` knows no arrays of ctypes
        first = ctypes.addressof(requests)
        self._pointers = (ctypes.c_void_p * DEPTH)(*(first + _REQUEST.size * i for i in range(DEPTH)))
        self._done = ctypes.create_string_buffer(_EVENT.size * DEPTH)
        self._results = memoryview(self._done)
        self._waiting: deque[tuple[int, T]] = deque()
        self._running: dict[int, T] = {}
        self._refused: list[tuple[T, OSError | None]] = []
        self._number = 0
        try:
            self._try_one()
        except OSError:  # a kernel before 4.18
            self.close()
            raise

    def _try_one(self) -> None:
        file = os.memfd_create("sync")
        try:
            self._put(0, file)
            self._call(self._submit, self._context, ctypes.c_long(1), self._pointers)
            self._reap(1)  # `fileno` may be readable once for it, with nothing to report
        finally:
            os.close(file)

    def _put(self, place: int, fd: int) -> None:
        request = (_FDSYNC, 0, fd, 0, 0, 0, 0, _TELL_EVENTFD, self._eventfd)
        _REQUEST.pack_into(self._requests, _REQUEST.size * place, self._number + place, 0, 0, *request)

    def _reap(self, least: int) -> int:
        """Collect the syncs that are done; waits for at least `least`. Gives how many."""
        most = ctypes.c_long(DEPTH)
        return self._call(self._events, self._context, ctypes.c_long(least), most, self._done, ctypes.c_void_p())

    def _call(self, *arguments: object) -> int:
        result: int = self._libc.syscall(*arguments)
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result

    def __len__(self) -> int:
        """How many syncs are not done yet."""
        return len(self._waiting) + len(self._running) + len(self._refused)

    def fileno(self) -> int:
        return self._eventfd

    def add(self, fd: int, token: T) -> None:
        """Sync a file with the next `submit`. It must stay open until the sync is done."""
        self._waiting.append((fd, token))

    def submit(self) -> None:
        """Begin the syncs that were added, as far as there is room; the rest begin when others are done."""
        while self._waiting and len(self._running) < DEPTH:
            count = min(len(self._waiting), DEPTH - len(self._running))
            for i in range(count):
                self._put(i, self._waiting[i][0])
            try:
                begun = self._call(self._submit, self._context, ctypes.c_long(count), self._pointers)
            except OSError:  # no memory for the first one just now, or not a file: fdatasync itself decides
                self._sync_here(*self._waiting.popleft())
                continue
            for _ in range(begun):
                self._running[self._number] = self._waiting.popleft()[1]
                self._number += 1

    def _sync_here(self, fd: int, token: T) -> None:
        error: OSError | None = None
        try:
            os.fdatasync(fd)
        except OSError as caught:
            error = caught
        self._refused.append((token, error))
        os.write(self._eventfd, _ONE)

    def completed(self) -> list[tuple[T, OSError | None]]:
        """The syncs that are done since the last call, with their errors. Waiting ones begin."""
        try:
            os.read(self._eventfd, len(_ONE))
        except BlockingIOError:
            return []
        found, self._refused = self._refused, []
        for i in range(self._reap(0)):
            number, _, result, _ = _EVENT.unpack_from(self._results, _EVENT.size * i)
            error = None if result >= 0 else OSError(-result, os.strerror(-result))
            found.append((self._running.pop(number), error))
        self.submit()
        return found

    def close(self) -> None:
        """Wait for the syncs in flight, then close."""
        self._call(self._destroy, self._context)
        os.close(self._eventfd)
