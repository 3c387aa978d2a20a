"""A disk of a test's own that can be full, without harm to the machine's."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path


def mount(folder: Path, mib: int) -> str | None:
    """Put a disk of that size under a folder; why not, if that cannot be."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(folder)]
    made = subprocess.run(command, capture_output=True, check=False)
    return None if made.returncode == 0 else made.stderr.decode().strip()


def unmount(folder: Path) -> None:
    """Take it away again, whoever has files open there."""
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(file: Path) -> None:
    """Leave no room on the disk, until this file is removed."""
    size = 4 << 20
    with file.open("wb") as out:
        while size >= 4096:
            try:
                os.posix_fallocate(out.fileno(), os.fstat(out.fileno()).st_size, size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
