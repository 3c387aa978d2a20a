"""A folder for the temporary files of the JVM that this process starts.

Spark's libraries unpack native code into it (15 MB for RocksDB alone), and Spark keeps the state of streams there. A
JVM that is killed removes nothing, and a driver's is always killed. So each process has a folder of its own and holds a
lock on it. It removes the folder when it ends; if it is killed, the next such process of the same user does.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "barnabas-spark-"
_own: list[Path] = []


def folder() -> Path:
    """This process's folder. The first call creates it, and removes what ended processes have left. Raises OSError."""
    if not _own:
        _remove_abandoned(Path(tempfile.gettempdir()))
        _own.append(_create())
        atexit.register(remove)
    return _own[0]


def remove() -> None:
    """Remove this process's folder, if it has one. A JVM that still runs has no use for its files any more."""
    while _own:
        shutil.rmtree(_own.pop(), ignore_errors=True)


def _create() -> Path:
    """A new folder, locked until this process ends."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=PREFIX))
        with suppress(FileNotFoundError):  # another process took it for an abandoned one before it was locked
            lock = _lock(made)
            if lock is not None and made.exists():
                return made  # the lock is never released: its descriptor is closed by the end of the process


def _remove_abandoned(parent: Path) -> None:
    """Remove all folders of this user's ended processes."""
    for found in parent.glob(PREFIX + "*"):
        with suppress(OSError):
            if found.lstat().st_uid != os.geteuid():
                continue
            lock = _lock(found)
            if lock is not None:
                shutil.rmtree(found, ignore_errors=True)
                os.close(lock)


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock; None if another process holds it. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
