"""Drop files from the page cache, and measure their share in it."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

from bench.limits import Skip

MOST_CACHED = 0.01
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
MAP_FAILED = ctypes.c_void_p(-1).value


def drop(files: Iterable[Path]) -> float:
    """Sync files and drop their pages; returns the share that stayed. Raises Skip if that is above one per cent."""
    pages = there = 0
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            found = resident(fd)
        finally:
            os.close(fd)
        pages, there = pages + len(found), there + sum(found)
    share = there / max(1, pages)
    if share > MOST_CACHED:
        raise Skip(f"{share:.0%} of the pages stay in the page cache of this machine")
    return share


def resident(fd: int) -> list[bool]:
    """Which pages of a file are in the page cache."""
    size = os.fstat(fd).st_size
    if not size:
        return []
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address == MAP_FAILED:
        raise OSError(ctypes.get_errno(), "mmap")
    try:
        found = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
        if _libc.mincore(address, size, found):
            raise OSError(ctypes.get_errno(), "mincore")
        return [bool(byte & 1) for byte in found.raw]
    finally:
        _libc.munmap(address, size)
