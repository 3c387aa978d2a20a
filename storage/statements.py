"""Write checkpoints: how far each partition is durable, where it starts, and how far it is compacted.

The index entries below a recovery point are on disk before the point is written.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

import trio

from barnabas.storage.checkpoints import Checkpoints, Line, Turn, read_checkpoints, write_checkpoints, write_ids
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

T = TypeVar("T")
Vnodes = dict[TopicPartition, LocalVnode]
#: New lines of partitions; None removes a line.
Lines = dict[TopicPartition, Line | None]


class Statements:
    """The checkpoints of a data directory; `stated` is their content."""

    def __init__(self, io: Io, path: str, limiter: trio.CapacityLimiter, upkeep: Upkeep) -> None:
        self.stated = Checkpoints()
        self._io = io
        self._path = path
        self._limiter = limiter
        self._upkeep = upkeep
        self._lock = trio.Lock()
        self._asked = 0
        self._written = 0  # of the requests: one write serves all who asked before it began

    def read(self, tell: Tell) -> None:
        """Read what the last process wrote."""
        self.stated = read_checkpoints(self._io, self._path, tell)

    def name_topics(self, vnodes: Vnodes) -> None:
        """Note the topics of the entries if Kafka or an earlier version wrote the checkpoints, without topic ids.

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
        """Write to disk how far each partition is durable, and where it starts. Raises `StorageError`.

        All who call this during a write share the next write.
        """
        self._asked += 1
        asked = self._asked
        async with self._lock:
            if self._written >= asked:
                return
            covers = self._asked
            sources = self._sources(vnodes)
            lines: Lines = {}
            async for key in in_pieces(self.stated.keys()):
                if not any(key in vnodes for vnodes in sources):
                    lines[key] = None
            paths: list[str] = []
            async for key, vnode in _all(*sources):
                stated = self.stated.line(key)
                line = self._line(key, vnode, stated, paths)
                if line != stated:
                    lines[key] = line
                else:
                    lines.pop(key, None)
            self._finish(lines)
            await self._put(lines, paths)
            self._written = covers

    def _sources(self, vnodes: Vnodes) -> list[Vnodes]:
        """The partitions that get entries."""
        return [vnodes]

    def _line(self, key: TopicPartition, vnode: LocalVnode, stated: Line | None, paths: list[str]) -> Line | None:
        """The entries of a partition, which are `stated` so far; None if its folder cannot be read.

        Adds to `paths` what must be on disk before them.
        """
        try:
            topic_id, turn = self._whose(key, vnode)
        except StorageError:
            return None
        before = self._before(key, topic_id, stated)
        # Take the point first: index entries below it are written and synced before the point is.
        point, start, cleaned = vnode.recovery_point, vnode.checkpointed_start, vnode.cleaned_to
        try:
            indexes = vnode.write_indexes()
        except StorageError:
            return Line(topic_id, turn, before, start, cleaned)
        if vnode.error is not None:  # the entries that were only in memory are lost
            return Line(topic_id, turn, before, start, cleaned)
        if point != before:
            paths += indexes
        return Line(topic_id, turn, point, start, cleaned)

    def _whose(self, key: TopicPartition, vnode: LocalVnode) -> tuple[str, Turn | None]:
        """The id of a partition's topic, as checkpoints have it, and the turn. Raises StorageError."""
        return encode_uuid(vnode.topic_id), None

    def _before(self, key: TopicPartition, topic_id: str, stated: Line | None) -> int:
        """The recovery point in a partition's entry."""
        return stated.point if stated is not None and stated.topic_id == topic_id else 0

    def _finish(self, lines: Lines) -> None:
        """Bring the lines up to date with what happened while they were gathered. Here there is nothing to do."""

    async def _put(self, lines: Lines, paths: list[str]) -> None:
        """Write the checkpoints with these lines changed. On a full disk discarded files are deleted first.

        Raises `StorageError`.
        """
        if not lines:
            return
        stated = self.stated

        def write() -> Checkpoints:
            sync_all(self._io, paths)
            found = stated.with_lines(lines)
            write_checkpoints(self._io, self._path, found, stated)
            return found

        try:
            try:
                self.stated = await trio.to_thread.run_sync(write, limiter=self._limiter)
            except OSError as error:
                if fault_of(error) is not Fault.SPACE or not self._upkeep.may_make_room:
                    raise
                await self._upkeep.delete_discarded()
                self.stated = await trio.to_thread.run_sync(write, limiter=self._limiter)
        except OSError as error:
            raise StorageError(f"cannot write checkpoints in {self._path}: {error}") from error


class NodeStatements(Statements):
    """The checkpoints of one of several nodes, in its own folder; see `storage.stated`.

    A partition that the node has taken has an open turn, which is on disk before the vnode is used. The entry of a
    partition that was given away stays, under its turn, until the partition is taken back or its folder is gone.
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
        #: Vnodes whose turns have begun, and that are not used yet.
        self._arriving: Vnodes = {}

    def read_own(self, tell: Tell) -> None:
        """Read what this node wrote in its last run. For a thread."""
        self.stated = read_node(self._io, self._top, self._node_id, tell)
        for key, turn in self.stated.turns.items():
            if key not in self._held:
                topic_id = (self.stated.ids or {})[key]
                start, point = self.stated.of(key, topic_id)
                self._left[key] = Line(topic_id, turn, point, start, self.stated.cleaned_of(key, topic_id))

    def read_others(self, tell: Tell) -> Stated:
        """Read the current entries of all nodes. For a thread; raises OSError."""
        self._all_stated = read_stated(self._io, self._top, tell)
        return self._all_stated

    def name_topics(self, vnodes: Vnodes) -> None:
        """Does nothing: nodes write ids from the first checkpoint on."""

    def begin(self, vnodes: Vnodes) -> None:
        """Begin the turns of vnodes that are not used yet. `write` writes them; then `begun` or `not_begun` follows."""
        self._arriving |= vnodes
        for key, vnode in vnodes.items():
            self.hold(key, vnode)

    def hold(self, key: TopicPartition, vnode: LocalVnode) -> None:
        """Note that the node has the partition from now on. Raises StorageError."""
        assert self._all_stated is not None
        number = self._all_stated.next_turn(key)
        for own in (self._left.get(key), self._held.get(key)):  # it may not be on disk
            number = max(number, own.turn.number + 1 if own is not None and own.turn is not None else 0)
        self._held[key] = Line(encode_uuid(vnode.topic_id), Turn(number, False), vnode.recovery_point)

    def begun(self, keys: Iterable[TopicPartition]) -> None:
        """Note that the turns are on disk, and the vnodes in use."""
        for key in keys:
            self._arriving.pop(key, None)
            self._left.pop(key, None)

    def not_begun(self, keys: Iterable[TopicPartition]) -> None:
        """Note that the turns could not be written: nothing was written to these partitions."""
        for key in keys:
            self._arriving.pop(key, None)
            self._held.pop(key, None)

    def leave(self, key: TopicPartition, vnode: LocalVnode, *, closed: bool) -> None:
        """Note that the node no longer has the partition. If the turn is not `closed`, the next node recovers it."""
        held = self._held.pop(key, None)
        if held is None or held.turn is None:
            return
        point = vnode.recovery_point if closed else self._point_of(key, held)
        turn = Turn(held.turn.number, closed)
        self._left[key] = Line(held.topic_id, turn, point, vnode.checkpointed_start, vnode.cleaned_to)

    def forget(self, key: TopicPartition) -> None:
        """Drop the entry of a deleted partition."""
        self._held.pop(key, None)

    async def write_turns(self) -> None:
        """Write only which turns have begun and ended; the entries of vnodes in use stay as they are.

        Raises `StorageError`.
        """
        async with self._lock:
            lines: Lines = {}
            async for key, turn in in_pieces(self.stated.turns.items()):
                if key not in self._held or self._held[key].turn != turn:
                    lines[key] = None
            for key, vnode in self._arriving.items():
                held = self._held[key]
                point, start, cleaned = vnode.recovery_point, vnode.checkpointed_start, vnode.cleaned_to
                lines[key] = Line(held.topic_id, held.turn, point, start, cleaned)
            self._finish(lines)
            await self._put(lines, [])

    async def forget_deleted(self) -> None:
        """Drop the entries of partitions that were given away and have no folder now."""
        left = dict(self._left)

        def look() -> list[TopicPartition]:
            return [key for key in left if not os.path.exists(os.path.join(self._top, f"{key[0]}-{key[1]}"))]

        for key in await trio.to_thread.run_sync(look, limiter=self._limiter) if left else []:
            if self._left.get(key) is left[key]:
                del self._left[key]

    def _sources(self, vnodes: Vnodes) -> list[Vnodes]:
        return [vnodes, self._arriving]

    def _whose(self, key: TopicPartition, vnode: LocalVnode) -> tuple[str, Turn | None]:
        held = self._held.get(key)
        return (held.topic_id, held.turn) if held is not None else super()._whose(key, vnode)

    def _before(self, key: TopicPartition, topic_id: str, stated: Line | None) -> int:
        held = self._held.get(key)
        return 0 if held is None else self._point_of(key, held)

    def _point_of(self, key: TopicPartition, held: Line) -> int:
        """The recovery point written in this turn."""
        return self.stated.points.get(key, 0) if self.stated.turns.get(key) == held.turn else held.point

    def _finish(self, lines: Lines) -> None:
        for key, line in lines.items():
            held = self._held.get(key)
            if line is not None:  # else it is left or deleted
                lines[key] = None if held is None else line._replace(turn=held.turn)
        lines |= {key: line for key, line in self._left.items() if key not in self._held}
        for key in [key for key, line in lines.items() if line == self.stated.line(key)]:
            del lines[key]


async def _all(*sources: Vnodes) -> AsyncIterator[tuple[TopicPartition, LocalVnode]]:
    """Every partition. Other tasks run in between; partitions that they delete are left out."""
    async for key in in_pieces([key for vnodes in sources for key in vnodes]):
        vnode = next((vnodes[key] for vnodes in sources if key in vnodes), None)
        if vnode is not None:
            yield key, vnode


async def in_pieces(items: Iterable[T]) -> AsyncIterator[T]:
    """The items. Other tasks run in between; they must not change the collection."""
    until = time.perf_counter() + HOLD_SECONDS
    for item in items:
        if time.perf_counter() > until:
            await trio.lowlevel.checkpoint()
            until = time.perf_counter() + HOLD_SECONDS
        yield item
