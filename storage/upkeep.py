"""Background work in a data directory: discarded files are deleted, and damaged segments are repaired."""

from __future__ import annotations

import os
from collections.abc import Collection

import trio

from barnabas.storage import garbage
from barnabas.storage.errors import StorageError
from barnabas.storage.io import Io, sync_path
from barnabas.storage.layout import DELETE_SUFFIX
from barnabas.storage.replacing import ReplacingLog
from barnabas.storage.segment import Segment

# A damaged segment that could not be repaired, for example for lack of room, is tried again after this time.
_NEXT_REPAIR_SECONDS = 10.0


class Upkeep:
    """Work that waits for a thread. `added` is set when there is any."""

    def __init__(self, io: Io, path: str, limiter: trio.CapacityLimiter) -> None:
        self.added = trio.Event()
        self._io = io
        self._path = path
        self._limiter = limiter
        self._doomed: list[str] = []
        self._repairs: dict[ReplacingLog, Segment] = {}
        self._next_repair: dict[ReplacingLog, float] = {}
        self._deleting = trio.Lock()

    def discard(self, paths: list[str]) -> None:
        """Queue files and folders for deletion."""
        self._doomed += paths
        self.added.set()

    @property
    def may_make_room(self) -> bool:
        """Whether anything waits to be deleted."""
        return bool(self._doomed)

    def forget(self, vnode: ReplacingLog) -> None:
        """Drop the vnode's repairs: another node has it now."""
        self._repairs.pop(vnode, None)
        self._next_repair.pop(vnode, None)

    def note_damage(self, vnode: ReplacingLog, segment: Segment) -> None:
        """Queue a segment in which a reader met damage. A repair that failed is not tried again at once."""
        if trio.current_time() >= self._next_repair.get(vnode, 0):
            self._repairs[vnode] = segment
            self.added.set()

    async def mend_damaged(self) -> None:
        """Set aside the damage that readers have met."""
        while self._repairs:
            vnode, segment = self._repairs.popitem()
            error: OSError | None = None
            try:
                job = vnode.begin_repair(segment)
            except StorageError:  # for example no room to roll; its readers ask again
                job = None
            if job is None:
                continue
            try:
                await trio.to_thread.run_sync(job.run, limiter=self._limiter)
            except OSError as caught:
                error = caught
            if vnode.end_repair(job, error):
                self._next_repair.pop(vnode, None)
            else:
                self._next_repair[vnode] = trio.current_time() + _NEXT_REPAIR_SECONDS

    async def delete_discarded(self) -> None:
        """Delete the queued files. Files discarded meanwhile wait for the next call."""
        async with self._deleting:
            paths, self._doomed = self._doomed, []
            self.added = trio.Event()
            if paths:
                await trio.to_thread.run_sync(self._delete, paths, limiter=self._limiter)
                for _ in garbage.steps():  # the disk's room is free only when the files are closed, too
                    await trio.lowlevel.checkpoint()

    async def delete_discarded_in(self, directories: Collection[str]) -> None:
        """Delete the queued files of these folders. When this returns, no deletion in them runs either."""
        async with self._deleting:
            paths = [path for path in self._doomed if os.path.dirname(path) in directories]
            if paths:
                doomed = set(paths)
                self._doomed = [path for path in self._doomed if path not in doomed]
                await trio.to_thread.run_sync(self._delete, paths, limiter=self._limiter)

    def _delete(self, paths: list[str]) -> None:
        """Delete files and folders. If one cannot be deleted now, the next start finds it by its name.

        A folder's new name is synced before any file in it is deleted. Half a folder under its old name, without the
        file that has its topic's id, would look like one that was copied in from elsewhere.
        """
        renamed = False
        for path in paths:
            try:
                if path.endswith(DELETE_SUFFIX):
                    if not renamed:
                        sync_path(self._io, self._path)
                        renamed = True
                    self._io.rmtree(path)
                else:
                    self._io.unlink(path)
            except OSError:
                pass
