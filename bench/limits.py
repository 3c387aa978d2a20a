"""What this machine allows: open files, free disk, and rows that are skipped because of it."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

SPARE_FILES = 500
SPARE_BYTES = 2 * 10**9


class Skip(Exception):
    """A row that cannot be measured here; the message is one line."""


def raise_open_files() -> int:
    """Allow this process and its children as many open files as the system lets us; gives the number."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def need_files(count: int) -> None:
    """Raises Skip if a process may not have `count` connections."""
    if count + SPARE_FILES > (allowed := raise_open_files()):
        raise Skip(f"needs {count + SPARE_FILES} open files, {allowed} are allowed (ulimit -Hn)")


def need_disk(folder: Path, size: int) -> None:
    """Raises Skip if less than `size` bytes and some spare room are free in a folder."""
    if size + SPARE_BYTES > (free := shutil.disk_usage(folder).free):
        raise Skip(f"needs {(size + SPARE_BYTES) / 1e9:.0f} GB of disk, {free / 1e9:.0f} GB are free in {folder}")
