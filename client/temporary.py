"""A folder for temporary files that goes away with its process, however the process ends.

The process holds a lock on a file in the folder, and removes the folder when it ends. If it is killed, the next process
of the same user that makes such a folder removes it. A folder without that file is never touched, whatever its name is.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Self

LOCK_FILE = "temporary.lock"


class TemporaryFolder:
    """A new folder in the system's folder for temporary files (TMPDIR). Only this user may use it."""

    def __init__(self, prefix: str) -> None:
        """`prefix` is the beginning of its name. Folders with this prefix whose processes have ended are removed first.

        Raises OSError.
        """
        _remove_abandoned(Path(tempfile.gettempdir()), prefix)
        self.path, lock = _create(prefix)
        # Also called when the process ends.
        self._remove = weakref.finalize(self, _remove_own, self.path, lock, os.getpid())

    def remove(self) -> None:
        """Remove it, if it is still there. Another process may still write to it: its files are of no use any more."""
        self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _create(prefix: str) -> tuple[Path, int]:
    """A new folder, and a descriptor that holds its lock."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            lock = _lock(made, os.O_CREAT)
        except FileNotFoundError:  # another process took it for an abandoned one
            continue
        except OSError:  # a full disk, no descriptors: without the file, nobody would remove it
            shutil.rmtree(made, ignore_errors=True)
            raise
        if lock is not None:
            if (made / LOCK_FILE).exists():
                return made, lock
            os.close(lock)


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove the folders of this user's ended processes."""
    for found in parent.glob(f"{prefix}*"):
        with suppress(OSError):
            if not found.is_symlink() and found.stat().st_uid == os.geteuid():
                lock = _lock(found, 0)
                if lock is not None:
                    _remove(found, lock)


def _remove_own(folder: Path, lock: int, pid: int) -> None:
    if os.getpid() == pid:  # not in a process that was forked from it
        _remove(folder, lock)


def _remove(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _lock(folder: Path, flags: int) -> int | None:
    """A descriptor that holds the folder's lock; None if another process holds it. Raises OSError."""
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_NOFOLLOW | flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor
