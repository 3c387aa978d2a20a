"""A small disk for a test, which can be filled without filling the machine's disk."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path


def mount(folder: Path, mib: int) -> str | None:
    """Mount a disk of that size on a folder; returns the reason if that is not possible."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(folder)]
    made = subprocess.run(command, capture_output=True, check=False)
    return None if made.returncode == 0 else made.stderr.decode().strip()


def unmount(folder: Path) -> None:
    """Unmount it, even if processes have files open on it."""
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(file: Path, leave: int = 0) -> None:
    """Fill the disk with a file, except for `leave` bytes; removing the file makes room again."""
    size = 4 << 20
    with file.open("wb") as out:
        while size >= 4096:
            try:
                os.posix_fallocate(out.fileno(), os.fstat(out.fileno()).st_size, size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
        out.truncate(max(0, os.fstat(out.fileno()).st_size - leave))
