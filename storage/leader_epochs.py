"""Which leader epoch began at which offset: the `leader-epoch-checkpoint` of a partition (KIP-101, KIP-279)."""

from __future__ import annotations

import os

from barnabas.storage.checkpoints import read_lines, write_lines
from barnabas.storage.io import Io

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED = (-1, -1)


class LeaderEpochs:
    """Epochs and their start offsets, both ascending. Every change is written to the file."""

    __slots__ = ("_directory", "_entries", "_io", "_is_on_disk", "latest")

    def __init__(self, directory: str, io: Io) -> None:
        self._directory = directory
        self._io = io
        self._entries: list[tuple[int, int]] = []
        self._is_on_disk = False
        self.latest = -1

    def load(self) -> None:
        try:
            entries = [(int(epoch), int(start)) for epoch, start in read_lines(self._io, self.path)]
        except ValueError:
            entries = []
        self._entries = sorted(entries)
        self._is_on_disk = bool(entries)
        self._settle()

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(self._entries)

    @property
    def path(self) -> str:
        return os.path.join(self._directory, FILE_NAME)

    def _settle(self) -> None:
        self.latest = self._entries[-1][0] if self._entries else -1

    def write(self) -> None:
        """Replace the file; the old one stays until the new one is on disk. The caller syncs it and its folder."""
        lines = [f"{epoch} {start}" for epoch, start in self._entries]
        write_lines(self._io, self.path, lines, sync=False, sync_data=self._is_on_disk)
        self._is_on_disk = True

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` begins at `start_offset`; false if it is not newer. The caller writes."""
        if epoch <= self.latest:
            return False
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        self.latest = epoch
        return True

    def begin(self, epoch: int, start_offset: int) -> None:
        """Like `assign` for a newer epoch, and writes. Raises OSError; then nothing has changed."""
        before = self.entries
        self.assign(epoch, start_offset)
        try:
            self.write()
        except OSError:
            self._entries = before
            self._settle()
            raise

    def truncate_end(self, end_offset: int) -> bool:
        """Forget epochs that begin at or after `end_offset`. If this gives true, the caller writes."""
        before = len(self._entries)
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()
        self._settle()
        return len(self._entries) != before

    def truncate_start(self, start_offset: int) -> bool:
        """Let the epoch in force at `start_offset` begin there; forget earlier ones. The caller writes."""
        kept = [entry for entry in self._entries if entry[1] > start_offset]
        earlier = [entry for entry in self._entries if entry[1] <= start_offset]
        if earlier:
            kept.insert(0, (earlier[-1][0], start_offset))
        changed = kept != self._entries
        self._entries = kept
        return changed

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and where it ends; `UNDEFINED` if that is not known."""
        if epoch < 0 or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        found = epoch
        for known, start in self._entries:
            if known > epoch:
                return found, start
            found = known
        return UNDEFINED
