"""Every system call that storage makes on a file, in one place, so that tests can make any of them fail.

`Io` has no state except the modes of the files that it makes; a test passes a subclass. Other users of the machine may
not read what clients store: directories are made with mode 0700 and files with 0600, less the umask. The operator may
let a group read them (`share_with_group`). Nothing here retries: `storage.faults` decides what an error means.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from barnabas.storage.faults import Fault, NotBegunError, fault_of
from barnabas.storage.kernel_sync import KernelSync
from barnabas.wire import portable
from barnabas.wire.aliases import BytesLike

#: The suffix of a file's name until the file is whole. The next start deletes files that have it.
TEMPORARY_SUFFIX = ".tmp"

# The most fsyncs in flight at once (_AT_ONCE) if more than _ALONE are pending.
_AT_ONCE = 8
_ALONE = 32
# Most files that are read whole are small.
_FIRST_READ = 4096
# The errors of `copy_file_range` where it is not supported: an older kernel, other file systems, special files.
_NO_COPY = (errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)

T = TypeVar("T")
R = TypeVar("R")


class Io:
    """The real system calls."""

    dir_mode, file_mode = 0o700, 0o600
    #: Whether a sync of a disk that is quick may run on the event loop.
    syncs_on_the_spot = True

    def share_with_group(self) -> None:
        """Let a file's group read the files that are made from now on."""
        self.dir_mode, self.file_mode = 0o750, 0o640

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode & self.file_mode)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return os.pread(fd, size, position)

    def pread_into(self, fd: int, buffer: memoryview, position: int) -> int:
        """Read into a buffer that exists, which saves making a new one; gives the number of bytes read."""
        return os.preadv(fd, (buffer,), position)

    def is_cached(self, fd: int, position: int) -> bool:
        """Whether the byte at `position` is in the page cache. If the system cannot tell, the answer is yes."""
        if not portable.has(os, "RWF_NOWAIT"):
            return True
        try:
            return os.preadv(fd, [bytearray(1)], position, os.RWF_NOWAIT) == 1
        except BlockingIOError:
            return False
        except OSError:
            return True

    def pwritev(self, fd: int, parts: Sequence[BytesLike], position: int) -> int:
        return os.pwritev(fd, parts, position)

    def fdatasync(self, fd: int) -> None:
        if portable.has(os, "fdatasync"):
            os.fdatasync(fd)
        else:
            full_sync(fd)

    def kernel_sync(self) -> KernelSync[Any] | None:
        """An fdatasync that does not wait, if the system can. A subclass that overrides `fdatasync` sees every sync."""
        if type(self).fdatasync is not Io.fdatasync or portable.forced:
            return None
        try:
            return KernelSync()
        except (OSError, AttributeError):  # the latter from a libc without `syscall`
            return None

    def fsync(self, fd: int) -> None:
        full_sync(fd)

    def ftruncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def set_modified(self, fd: int, nanoseconds: int) -> None:
        """State when the file was last changed."""
        os.utime(fd, ns=(nanoseconds, nanoseconds))

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path, self.dir_mode)

    def rmtree(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def copy(self, source_fd: int, target_fd: int, size: int, position: int) -> int:
        """Copy up to `size` bytes at `position` from file to file; gives how many. Some file systems share blocks."""
        try:
            if portable.has(os, "copy_file_range"):
                return os.copy_file_range(source_fd, target_fd, size, position, position)
        except OSError as error:
            if error.errno not in _NO_COPY:
                raise
        return self.pwritev(target_fd, (self.pread(source_fd, min(size, 1 << 20), position),), position)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder."""
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir()]

    def stat(self, path: str) -> os.stat_result:
        return os.stat(path)


def full_sync(fd: int) -> None:
    """fsync to the disk itself. On macOS fsync alone reaches only the disk's cache."""
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL):  # the file system does not support it
                raise
    os.fsync(fd)


def write_all(io: Io, fd: int, parts: Sequence[BytesLike], position: int) -> None:
    """Write all of `parts` at `position`, going on after short writes."""
    size = sum(map(len, parts))
    done = io.pwritev(fd, parts, position)
    if done == size:
        return
    rest = memoryview(b"".join(parts))
    while done < size:
        step = io.pwritev(fd, (rest[done:],), position + done)
        if step <= 0:
            raise OSError(5, "the file takes no more bytes")
        done += step


def read_file(io: Io, path: str) -> bytes:
    fd = io.open(path, os.O_RDONLY)
    try:
        parts = []
        position, size = 0, _FIRST_READ
        while part := io.pread(fd, size, position):
            parts.append(part)
            position += len(part)
            if len(part) < size:
                break
            size = 1 << 20
        return b"".join(parts)
    finally:
        io.close(fd)


def write_file(
    io: Io, path: str, data: bytes, *, sync: bool, sync_data: bool = False, suffix: str = TEMPORARY_SUFFIX
) -> None:
    """Replace the content of `path` with `data`; a crash leaves the old or the new content.

    The data are written under the path with the `suffix` first.
    With `sync` or `sync_data` this also holds for a loss of power. Once this returns, `sync` guarantees the new
    content; with `sync_data` it may still be the old one.
    """
    temporary = path + suffix
    fd = io.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        try:
            write_all(io, fd, (data,), 0)
            if sync or sync_data:
                io.fsync(fd)
        finally:
            io.close(fd)
        io.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # on a full disk it would keep taking room
            io.unlink(temporary)
        raise
    if sync:
        sync_path(io, os.path.dirname(path))


def sync_path(io: Io, path: str) -> None:
    """fsync a file or directory by its name; does nothing if it is gone by now.

    Raises NotBegunError if the file cannot be opened just now, OSError.
    """
    try:
        fd = io.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    except OSError as error:
        if fault_of(error) is not Fault.OFFLINE:
            raise NotBegunError(error.errno, error.strerror, path) from error
        raise
    try:
        io.fsync(fd)
    finally:
        io.close(fd)


def sync_all(io: Io, paths: list[str]) -> None:
    """`sync_path` of each."""
    a_few_at_a_time(partial(sync_path, io), paths)


def a_few_at_a_time(call: Callable[[T], R], items: list[T]) -> list[R]:
    """The results of the calls, in order. Many run a few at a time: fsyncs that overlap share a journal commit."""
    if len(items) <= _ALONE:
        return [call(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor  # slow to load, and a start does not need it

    with ThreadPoolExecutor(_AT_ONCE, "sync") as pool:
        return list(pool.map(call, items))
