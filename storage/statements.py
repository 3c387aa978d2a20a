"""Who states on disk how far each partition is durable, where it starts, and how far it is compacted.

The index entries below a recovery point are on disk before the point is stated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

import trio

from barnabas.storage.checkpoints import Checkpoints, Turn, read_checkpoints, write_checkpoints, write_ids
from barnabas.storage.errors import StorageError
from barnabas.storage.faults import Fault, fault_of
from barnabas.storage.flusher import HOLD_SECONDS
from barnabas.storage.io import Io, sync_all
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.report import Tell
from barnabas.storage.stated import Stated, read_node, read_stated
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
            async for key, vnode in _all(*self._sources(vnodes)):
                with contextlib.suppress(StorageError):  # a folder that cannot be read has nothing to state
                    topic_id = found.ids[key] = self._topic_id(key, vnode)
                    before = self._before(key, topic_id)
                    # The point first: index entries below it are written and synced before it is stated.
                    point, found.points[key] = vnode.recovery_point, before
                    if start := vnode.checkpointed_start:
                        found.starts[key] = start
                    if cleaned := vnode.cleaned_to:
                        found.cleaned[key] = cleaned
                    indexes = vnode.write_indexes()
                    if vnode.error is not None:  # entries that only memory had are gone
                        continue
                    found.points[key] = point
                    if point != before:
                        paths += indexes
            self._add(found)
            if found != self.stated:
                await self._put(found, paths)
            self._written = covers

    def _sources(self, vnodes: Vnodes) -> list[Vnodes]:
        """Where the partitions are of which something is to be stated."""
        return [vnodes]

    def _topic_id(self, key: TopicPartition, vnode: LocalVnode) -> str:
        """Raises StorageError."""
        return encode_uuid(vnode.topic_id)

    def _before(self, key: TopicPartition, topic_id: str) -> int:
        """The recovery point that is stated of a partition."""
        return self.stated.of(key, topic_id)[1]

    def _add(self, found: Checkpoints) -> None:
        """What is stated besides."""

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


class Line(NamedTuple):
    """What a node states of a partition that it has no more, or has just begun to have."""

    topic_id: str
    turn: Turn
    point: int
    start: int = 0
    cleaned: int = 0


class NodeStatements(Statements):
    """Those of one node among several, in its own folder; see `storage.stated`.

    A partition that the node has taken has an open turn, which is on disk before the vnode is used. What the node has
    given away stays stated, under its turn, until it is taken back or its folder is gone.
    """

    def __init__(
        self, io: Io, path: str, node_id: int, home: str, limiter: trio.CapacityLimiter, upkeep: Upkeep
    ) -> None:
        super().__init__(io, home, limiter, upkeep)
        self._top = path
        self._node_id = node_id
        self._all_stated: Stated | None = None
        self._held: dict[TopicPartition, Line] = {}
        self._left: dict[TopicPartition, Line] = {}
        #: Vnodes whose turns have begun, and that nobody uses yet.
        self._arriving: Vnodes = {}

    def read_own(self, tell: Tell) -> None:
        """What this node stated in its last life. For a thread."""
        self.stated = read_node(self._io, self._top, self._node_id, tell)
        for key, turn in self.stated.turns.items():
            if key not in self._held:
                topic_id = (self.stated.ids or {})[key]
                start, point = self.stated.of(key, topic_id)
                self._left[key] = Line(topic_id, turn, point, start, self.stated.cleaned_of(key, topic_id))

    def read_others(self, tell: Tell) -> Stated:
        """What all state by now. For a thread; raises OSError."""
        self._all_stated = read_stated(self._io, self._top, tell)
        return self._all_stated

    def name_topics(self, vnodes: Vnodes) -> None:
        """The ids are there from the first statement on."""

    def begin(self, vnodes: Vnodes) -> None:
        """The turns of vnodes that nobody uses yet. `write` states them; then `begun`, or `not_begun`."""
        self._arriving |= vnodes
        for key, vnode in vnodes.items():
            self.hold(key, vnode)

    def hold(self, key: TopicPartition, vnode: LocalVnode) -> None:
        """The node has the partition from now on. Raises StorageError."""
        assert self._all_stated is not None
        number = self._all_stated.next_turn(key)
        for own in (self._left.get(key), self._held.get(key)):  # which may not be on disk
            number = max(number, own.turn.number + 1 if own is not None else 0)
        self._held[key] = Line(encode_uuid(vnode.topic_id), Turn(number, False), vnode.recovery_point)

    def begun(self, keys: Iterable[TopicPartition]) -> None:
        """The turns are on disk, and the vnodes in use."""
        for key in keys:
            self._arriving.pop(key, None)
            self._left.pop(key, None)

    def not_begun(self, keys: Iterable[TopicPartition]) -> None:
        """They could not be stated: nothing was written to these partitions."""
        for key in keys:
            self._arriving.pop(key, None)
            self._held.pop(key, None)

    def leave(self, key: TopicPartition, vnode: LocalVnode, *, closed: bool) -> None:
        """The node does not have the partition any more. If it is not `closed`, the next one recovers it."""
        held = self._held.pop(key, None)
        if held is None:
            return
        point = vnode.recovery_point if closed else self._point_of(key, held)
        turn = Turn(held.turn.number, closed)
        self._left[key] = Line(held.topic_id, turn, point, vnode.checkpointed_start, vnode.cleaned_to)

    def forget(self, key: TopicPartition) -> None:
        """The partition is deleted."""
        self._held.pop(key, None)

    async def write_turns(self) -> None:
        """State only which turns have begun and ended: of the vnodes in use, what is stated stays.

        Raises `StorageError`.
        """
        async with self._lock:
            found = dataclasses.replace(
                self.stated,
                points=dict(self.stated.points),
                starts=dict(self.stated.starts),
                ids=dict(self.stated.ids or {}),
                cleaned=dict(self.stated.cleaned),
                turns=dict(self.stated.turns),
            )
            assert found.ids is not None
            for key, turn in self.stated.turns.items():
                if key not in self._held or self._held[key].turn != turn:
                    self._drop(found, key)
            for key, vnode in self._arriving.items():
                found.ids[key], found.points[key] = self._held[key].topic_id, vnode.recovery_point
                if start := vnode.checkpointed_start:
                    found.starts[key] = start
                if cleaned := vnode.cleaned_to:
                    found.cleaned[key] = cleaned
            self._add(found)
            if found != self.stated:
                await self._put(found, [])

    async def forget_deleted(self) -> None:
        """Nothing is stated any more of partitions that were given away and have no folder now."""
        left = dict(self._left)

        def look() -> list[TopicPartition]:
            return [key for key in left if not os.path.exists(os.path.join(self._top, f"{key[0]}-{key[1]}"))]

        for key in await trio.to_thread.run_sync(look, limiter=self._limiter) if left else []:
            if self._left.get(key) is left[key]:
                del self._left[key]

    def _sources(self, vnodes: Vnodes) -> list[Vnodes]:
        return [vnodes, self._arriving]

    def _topic_id(self, key: TopicPartition, vnode: LocalVnode) -> str:
        held = self._held.get(key)
        return held.topic_id if held is not None else super()._topic_id(key, vnode)

    def _before(self, key: TopicPartition, topic_id: str) -> int:
        held = self._held.get(key)
        return 0 if held is None else self._point_of(key, held)

    def _point_of(self, key: TopicPartition, held: Line) -> int:
        """The recovery point that is stated in this turn."""
        return self.stated.points.get(key, 0) if self.stated.turns.get(key) == held.turn else held.point

    def _add(self, found: Checkpoints) -> None:
        assert found.ids is not None
        for key in list(found.ids):
            if key in self._held:
                found.turns[key] = self._held[key].turn
            else:  # left or deleted meanwhile
                self._drop(found, key)
        for key, line in self._left.items():
            if key in self._held:
                continue
            found.ids[key], found.turns[key], found.points[key] = line.topic_id, line.turn, line.point
            if line.start:
                found.starts[key] = line.start
            if line.cleaned:
                found.cleaned[key] = line.cleaned

    @staticmethod
    def _drop(found: Checkpoints, key: TopicPartition) -> None:
        for each in (found.points, found.starts, found.cleaned, found.turns, found.ids or {}):
            each.pop(key, None)


async def _all(*sources: Vnodes) -> AsyncIterator[tuple[TopicPartition, LocalVnode]]:
    """Every partition; others have their turn in between, and what they delete is left out."""
    until = time.perf_counter() + HOLD_SECONDS
    for key, vnode in [item for vnodes in sources for item in vnodes.items()]:
        if time.perf_counter() > until:
            await trio.lowlevel.checkpoint()
            until = time.perf_counter() + HOLD_SECONDS
        if any(vnodes.get(key) is vnode for vnodes in sources):
            yield key, vnode
