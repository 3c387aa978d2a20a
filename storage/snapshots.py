"""Snapshots of a log's content beside it, as Kafka names them: `OFFSET-EPOCH.checkpoint` (KIP-630).

A snapshot replaces all of the log below its offset. It is written under another name and renamed once it is on disk, so
a snapshot with its own name is whole unless it was damaged later: readers check it.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from barnabas.storage.io import Io, read_file, write_file

#: What Kafka adds to the name of a snapshot that is not finished.
_UNFINISHED = ".part"
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint(\.part)?")


class SnapshotId(NamedTuple):
    """Where a snapshot ends: the offset after the last record that it covers, and that record's leader epoch."""

    offset: int
    epoch: int

    @property
    def name(self) -> str:
        return f"{self.offset:020d}-{self.epoch:010d}.checkpoint"


class Snapshots:
    """The snapshots in one folder. Calls take as long as the disk; all raise OSError."""

    def __init__(self, io: Io, directory: str) -> None:
        self._io = io
        self._directory = directory

    def ids(self) -> list[SnapshotId]:
        """The snapshots in the folder, the newest first."""
        found = [match for name in self._io.listdir(self._directory) if (match := _NAME.fullmatch(name))]
        return sorted((SnapshotId(int(match[1]), int(match[2])) for match in found if not match[3]), reverse=True)

    def path(self, snapshot: SnapshotId) -> str:
        return os.path.join(self._directory, snapshot.name)

    def read(self, snapshot: SnapshotId) -> bytes:
        return read_file(self._io, self.path(snapshot))

    def read_piece(self, snapshot: SnapshotId, position: int, most: int) -> tuple[int, bytes]:
        """The size of a snapshot in bytes, and at most `most` bytes from a position (at least 0) on."""
        path = self.path(snapshot)
        size = self._io.stat(path).st_size
        fd = self._io.open(path, os.O_RDONLY)
        try:
            return size, self._io.pread(fd, most, position)
        finally:
            self._io.close(fd)

    def write(self, snapshot: SnapshotId, data: bytes) -> None:
        """Write a snapshot. When this returns, the snapshot survives a loss of power."""
        write_file(self._io, self.path(snapshot), data, sync=True, suffix=_UNFINISHED)

    def prune(self, keep: int) -> None:
        """Remove all snapshots except the newest `keep`, and unfinished ones."""
        doomed = [snapshot.name for snapshot in self.ids()[keep:]]
        doomed += [name for name in self._io.listdir(self._directory) if name.endswith(f".checkpoint{_UNFINISHED}")]
        for name in doomed:
            self._io.unlink(os.path.join(self._directory, name))
