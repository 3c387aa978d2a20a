"""What was written and no flush has taken over yet, and the job that flushes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.files import OpenFile
from barnabas.storage.io import Io, sync_path
from barnabas.storage.segment import Segment

if TYPE_CHECKING:
    from barnabas.storage.log import Log


class LocalFlushJob:
    """The `FlushJob` of a local vnode: files to fdatasync, and names to fsync."""

    __slots__ = ("_io", "drops", "end_offset", "files", "paths", "position", "segment", "size")

    def __init__(
        self,
        io: Io,
        files: list[OpenFile],
        paths: list[str],
        *,
        end_offset: int,
        segment: Segment,
        position: int,
        size: int,
        drops: int,
    ) -> None:
        self._io = io
        self.files = files
        self.paths = paths
        self.end_offset = end_offset
        self.segment = segment
        self.position = position
        self.size = size
        self.drops = drops

    @property
    def syncs(self) -> int:
        return len(self.files) + len(self.paths)

    @property
    def lone_fd(self) -> int | None:
        return self.files[0].fd if len(self.files) == 1 and not self.paths else None

    def run(self) -> None:
        for file in self.files:
            self._io.fdatasync(file.fd)
        for path in self.paths:
            sync_path(self._io, path)


class Unflushed:
    """Files and names to sync besides the active segment's, and how much was appended since the last flush began."""

    __slots__ = ("_drops", "_drops_synced", "files", "flushed_at", "paths", "rolled_indexes", "size")

    def __init__(self, flushed_at: int) -> None:
        self.files: list[OpenFile] = []
        self.paths: list[str] = []
        self.size = 0
        #: Indexes of segments rolled since the last completed flush: one of the segments may end at the recovery point.
        self.rolled_indexes: list[str] = []
        #: The log end when the last flush began.
        self.flushed_at = flushed_at
        self._drops = self._drops_synced = 0

    def note_drop(self, directory: str) -> None:
        """Note that the oldest segment was renamed: that is durable once the folder is synced."""
        self.paths.append(directory)
        self._drops += 1

    @property
    def has_dropped(self) -> bool:
        """Whether a loss of power may bring dropped segments back."""
        return self._drops != self._drops_synced

    def begin(self, log: Log) -> LocalFlushJob | None:
        """A job that flushes all of it; None if nothing is owed."""
        active = log.active
        files, paths = self.files, self.paths
        if not active.dirty and not files and not paths:
            return None
        if active.dirty:
            assert active.file is not None
            files = [*files, active.file]
            log.cache.clean(active)
        self.files = []
        self.paths = []
        self.flushed_at = log.end_offset
        size, self.size = self.size, 0
        return LocalFlushJob(
            log.io,
            files,
            list(dict.fromkeys(paths)),
            end_offset=log.end_offset,
            segment=active,
            position=active.size,
            size=size,
            drops=self._drops,
        )

    def end(self, job: LocalFlushJob) -> None:
        """Note that the job has run."""
        self._drops_synced = job.drops
        if self.rolled_indexes:
            synced = set(job.paths)
            self.rolled_indexes = [path for path in self.rolled_indexes if path not in synced]

    def put_back(self, job: LocalFlushJob) -> None:
        """Take the job back, as it has not begun: it is owed again."""
        self.files = [*job.files, *self.files]
        self.paths = [*job.paths, *self.paths]
        self.size += job.size
