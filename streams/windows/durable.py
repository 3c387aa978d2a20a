"""Makes a checkpoint survive a loss of power, and repairs it after one.

Spark writes the files of a checkpoint and renames them into place, but syncs none. Written results must not be ahead of
the state. So the files of a batch (its offsets, and the state after it) are synced before its results are written.
Files written since then may be missing, empty or cut off. They are removed, as nothing needs them:

    offsets/N   of an unwritten batch: it is planned again
    commits/N   of a written one: Spark runs it again, from the state before it
    state       a version after the last one, or a snapshot made beside it: older ones are there, and all changes
"""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Callable, Iterator

import msgspec

from barnabas.streams.windows import batches

_TEMPORARY = (".tmp", ".tmp.crc")


class Syncer:
    """Syncs one checkpoint while its query runs."""

    def __init__(self, checkpoint: str, fsync: Callable[[str], None] | None = None) -> None:
        self._checkpoint = checkpoint
        self._fsync = fsync or _fsync
        self._synced: dict[str, int] = {}

    def sync(self) -> None:
        """Sync each new file, and the folders of new files. Raises OSError."""
        if not self._synced:
            place = self._checkpoint
            for _ in range(3):  # the folders of the query and of all queries
                self._fsync(place)
                place = os.path.dirname(place)
        there: dict[str, int] = {}
        folders = set()
        for path, inode in _files(self._checkpoint):
            there[path] = inode
            if self._synced.get(path) != inode:
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile because of its age
                    self._fsync(path)
                folders.add(os.path.dirname(path))
        for folder in folders | {os.path.dirname(folder) for folder in folders}:
            self._fsync(folder)
        self._synced = there


def mend(checkpoint: str) -> None:
    """Remove files that a killed query, or one whose machine lost power, left incomplete.

    No query of this checkpoint may run. Raises OSError.
    """
    for path, _ in list(_files(checkpoint, temporary=True)):
        name = os.path.basename(path)
        is_half = name.startswith(".") and name.endswith(_TEMPORARY)
        if is_half or (name.endswith(".crc") and not os.path.getsize(path)):
            os.unlink(path)
    for log in (batches.OFFSETS, batches.COMMITS):
        while (last := batches.last_batch(checkpoint, log)) >= 0 and not _is_whole(checkpoint, log, last):
            _remove(os.path.join(checkpoint, log, str(last)))
    for path, _ in list(_files(os.path.join(checkpoint, "state"))):
        if (path.endswith(".changelog") and not os.path.getsize(path)) or (
            path.endswith(".zip") and not _is_snapshot(path)
        ):
            _remove(path)


def _files(folder: str, *, temporary: bool = False) -> Iterator[tuple[str, int]]:
    """The files below a folder, with their inodes."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path, temporary=temporary)
        elif temporary or not entry.name.endswith(_TEMPORARY):
            yield entry.path, entry.inode()


def _is_whole(checkpoint: str, log: str, batch: int) -> bool:
    """Whether an entry of one of the two logs is complete. It ends with a line of JSON."""
    try:
        with open(os.path.join(checkpoint, log, str(batch)), "rb") as file:
            lines = file.read().strip().split(b"\n")
        for line in lines[1:]:
            msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return lines[0].startswith(b"v") and len(lines) > 1


def _is_snapshot(path: str) -> bool:
    """Whether a snapshot of state is complete, and the files that it refers to exist with their sizes."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                return False
            lines = archive.read("metadata").decode().strip().split("\n")
        named = msgspec.json.decode(lines[-1], type=dict[str, object]).get("sstFiles") or []
        files = msgspec.convert(named, type=list[dict[str, str | int]])
        folder = os.path.dirname(path)
        return all(
            os.path.getsize(os.path.join(folder, "SSTs", str(file["dfsSstFileName"]))) == file["sizeBytes"]
            for file in files
        )
    except (OSError, KeyError, zipfile.BadZipFile, msgspec.ValidationError, msgspec.DecodeError):
        return False


def _remove(path: str) -> None:
    """Remove a file and its checksum."""
    os.unlink(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.crc"))


def _fsync(path: str) -> None:
    found = os.open(path, os.O_RDONLY)
    try:
        os.fsync(found)
    finally:
        os.close(found)
