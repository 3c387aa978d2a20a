"""The limits of this machine, open files and free disk space, and rows that are skipped because of them."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

SPARE_FILES = 500
SPARE_BYTES = 2 * 10**9


class Skip(Exception):
    """A row cannot be measured on this machine; the message is one line."""


def raise_open_files() -> int:
    """Raise the limit of open files for this process and its children as far as possible; returns the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def need_files(count: int) -> None:
    """Raises Skip if a process may not have `count` connections."""
    if count + SPARE_FILES > (allowed := raise_open_files()):
        raise Skip(f"needs {count + SPARE_FILES} open files, {allowed} are allowed (ulimit -Hn)")


def need_disk(folder: Path, size: int) -> None:
    """Raises Skip if a folder has less free space than `size` bytes and a reserve."""
    if size + SPARE_BYTES > (free := shutil.disk_usage(folder).free):
        raise Skip(f"needs {(size + SPARE_BYTES) / 1e9:.0f} GB of disk, {free / 1e9:.0f} GB are free in {folder}")
