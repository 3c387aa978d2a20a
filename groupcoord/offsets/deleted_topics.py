"""Forgets the offsets of deleted topics, in steps, because one topic may have offsets in every group.

A topic of the same name may be created before the last step. Offsets committed for it are kept: they have another topic
id or, from clients that send no id, a time after the deletion.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from barnabas.groupcoord.group import Surroundings
from barnabas.groupcoord.log.shard import Shard, Shards
from barnabas.groupcoord.offsets.committed import NO_OFFSETS, OffsetManager
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.records.offset_commit import OffsetCommitValue
from barnabas.wire.types import ZERO_UUID

# How many offsets and groups are checked before others get their turn.
AT_ONCE = 500
# How many seconds to leave a pending commit alone: only when it is durable does memory know its topic.
_WAIT_SECONDS = 0.02


@dataclass(slots=True)
class _Deletion:
    """The rest of the work in one shard: groups to check, and offsets found."""

    shard: Shard
    topic: str
    topic_id: bytes
    at_ms: int
    groups: list[str]
    found: list[tuple[str, TopicPartition]] = field(default_factory=list)
    not_durable: list[str] = field(default_factory=list)

    def look_through(self, group_id: str) -> int:
        """Find the group's offsets of the topic. Returns how many offsets, of all topics, had to be checked."""
        offsets = self.shard.offsets.get(group_id, NO_OFFSETS)
        places = offsets.places()
        of_name = [where for where in places if where[0] == self.topic]
        if any(self._value(group_id, where) is None for where in of_name):
            self.not_durable.append(group_id)
            return len(places)
        found = [(group_id, where) for where in of_name if self.is_of(group_id, where)]
        self.found += found
        if len(found) == len(of_name):
            self.shard.reads_no_more(group_id, self.topic)
        return len(places)

    def is_of(self, group_id: str, where: TopicPartition) -> bool:
        """Whether the offset known for a partition was committed for the deleted topic."""
        offset = self._value(group_id, where)
        if offset is None or self.topic_id == ZERO_UUID:
            return offset is not None
        if offset.topic_id == ZERO_UUID:
            return offset.commit_timestamp <= self.at_ms
        return offset.topic_id == self.topic_id

    def _value(self, group_id: str, where: TopicPartition) -> OffsetCommitValue | None:
        committed = self.shard.offsets.get(group_id, NO_OFFSETS).committed.get(where)
        return committed or self.shard.open_transactions.last((group_id, *where))


class DeletedTopics:
    """Forgets the offsets of deleted topics. The first step is made at once, the others by the timers."""

    def __init__(self, shards: Shards, offsets: OffsetManager, around: Surroundings) -> None:
        self._shards, self._offsets, self._wall_ms = shards, offsets, around.wall_ms
        self._deadlines = around.deadlines
        self._next_step = around.deadlines.new(self._step)
        self._left: deque[_Deletion] = deque()

    @property
    def is_busy(self) -> bool:
        """Whether there is something left to forget."""
        return bool(self._left)

    def forget(self, name: str, topic_id: bytes = ZERO_UUID) -> None:
        """A topic was deleted. With its id, the offsets of another topic of the same name stay."""
        for shard in self._shards.by_partition.values():
            groups = shard.readers.get(name)
            if groups:
                self._left.append(_Deletion(shard, name, topic_id, self._wall_ms(), list(groups)))
        self._step()

    def _step(self) -> None:
        left = AT_ONCE
        waiting: list[_Deletion] = []
        while self._left and left > 0:
            deletion = self._left[0]
            left = self._go_on(deletion, left)
            if not self._shards.has(deletion.shard):
                self._left.popleft()
            elif not deletion.groups and not deletion.found:
                self._left.popleft()
                if deletion.not_durable:
                    deletion.groups, deletion.not_durable = deletion.not_durable, []
                    waiting.append(deletion)
        wait = 0.0 if self._left else _WAIT_SECONDS
        self._left += waiting
        if self._left:
            self._next_step.set(self._deadlines.clock() + wait)

    def _go_on(self, deletion: _Deletion, left: int) -> int:
        """Do as much as `left` allows, and return what is left of it."""
        gone: dict[str, list[TopicPartition]] = {}
        while left > 0 and (deletion.found or deletion.groups):
            if deletion.found:
                group_id, where = deletion.found.pop()
                left -= 1
                if deletion.is_of(group_id, where):  # checked again, as others had their turn meanwhile
                    gone.setdefault(group_id, []).append(where)
            else:
                left -= 1 + deletion.look_through(deletion.groups.pop()) // 8
        if gone and self._shards.has(deletion.shard):
            self._offsets.forget(deletion.shard, gone, tell=True)
        return left
