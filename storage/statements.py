"""Who states on disk how far each partition is durable, where it starts, and how far it is compacted.

The index entries below a recovery point are on disk before the point is stated.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator

import trio

from barnabas.storage.checkpoints import Checkpoints, read_checkpoints, write_checkpoints, write_ids
from barnabas.storage.errors import StorageError
from barnabas.storage.faults import Fault, fault_of
from barnabas.storage.flusher import HOLD_SECONDS
from barnabas.storage.io import Io, sync_all
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.report import Tell
from barnabas.storage.upkeep import Upkeep
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.uuids import encode_uuid

Vnodes = dict[TopicPartition, LocalVnode]


class Statements:
    """The checkpoints of a data directory: `stated` is what they say."""

    def __init__(self, io: Io, path: str, limiter: trio.CapacityLimiter, upkeep: Upkeep) -> None:
        self.stated = Checkpoints()
        self._io = io
        self._path = path
        self._limiter = limiter
        self._upkeep = upkeep
        self._lock = trio.Lock()
        self._asked = 0
        self._written = 0  # of those asked: one file serves all who asked before it was begun

    def read(self, tell: Tell) -> None:
        """What the last process stated."""
        self.stated = read_checkpoints(self._io, self._path, tell)

    def name_topics(self, vnodes: Vnodes) -> None:
        """Where the checkpoints are Kafka's, or of an earlier version: they speak of these topics from now on.

        Raises `StorageError`.
        """
        if self.stated.ids is not None:
            return
        self.stated.ids = {key: encode_uuid(vnode.topic_id) for key, vnode in vnodes.items()}
        try:
            write_ids(self._io, self._path, self.stated)
        except OSError as error:
            raise StorageError(f"cannot write checkpoints in {self._path}: {error}") from error

    async def write(self, vnodes: Vnodes) -> None:
        """State on disk how far each partition is durable, and where it starts. Raises `StorageError`.

        Those who come while one is written share the next one, however many they are.
        """
        self._asked += 1
        asked = self._asked
        async with self._lock:
            if self._written >= asked:
                return
            covers = self._asked
            found = Checkpoints()
            assert found.ids is not None
            paths: list[str] = []
            async for key, vnode in _all(vnodes):
                with contextlib.suppress(StorageError):  # a folder that cannot be read has nothing to state
                    topic_id = found.ids[key] = encode_uuid(vnode.topic_id)
                    before = self.stated.of(key, topic_id)[1]
                    # The point first: index entries below it are written and synced before it is stated.
                    point, found.points[key] = vnode.recovery_point, before
                    if start := vnode.checkpointed_start:
                        found.starts[key] = start
                    if cleaned := vnode.cleaned_to:
                        found.cleaned[key] = cleaned
                    indexes = vnode.write_indexes()
                    found.points[key] = point
                    if point != before:
                        paths += indexes
            if found != self.stated:
                await self._put(found, paths)
            self._written = covers

    async def _put(self, found: Checkpoints, paths: list[str]) -> None:
        """Raises `StorageError`. On a full disk what is discarded goes first, as that may make room."""

        def write() -> None:
            sync_all(self._io, paths)
            write_checkpoints(self._io, self._path, found, self.stated)

        try:
            try:
                await trio.to_thread.run_sync(write, limiter=self._limiter)
            except OSError as error:
                if fault_of(error) is not Fault.SPACE or not self._upkeep.may_make_room:
                    raise
                await self._upkeep.delete_discarded()
                await trio.to_thread.run_sync(write, limiter=self._limiter)
        except OSError as error:
            raise StorageError(f"cannot write checkpoints in {self._path}: {error}") from error
        self.stated = found


async def _all(vnodes: Vnodes) -> AsyncIterator[tuple[tuple[str, int], LocalVnode]]:
    """Every partition; others have their turn in between, and what they delete is left out."""
    until = time.perf_counter() + HOLD_SECONDS
    for key, vnode in list(vnodes.items()):
        if time.perf_counter() > until:
            await trio.lowlevel.checkpoint()
            until = time.perf_counter() + HOLD_SECONDS
        if vnodes.get(key) is vnode:
            yield key, vnode
