"""The partitions of `__consumer_offsets` on this broker: their groups and offsets, in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from barnabas.groupcoord.group import Group
from barnabas.groupcoord.log.owned import OwnedShard, OwnedShards
from barnabas.groupcoord.log.records import CoordinatorRecord
from barnabas.groupcoord.log.store import ProducerEpoch, Store
from barnabas.groupcoord.offsets.committed import Offsets
from barnabas.groupcoord.offsets.open_transactions import OpenTransactions
from barnabas.groupcoord.outbox import Outbox
from barnabas.wire.errors import ErrorCode

G = TypeVar("G", bound=Group)


class Shard(OwnedShard):
    """One partition."""

    def __init__(self, partition: int) -> None:
        super().__init__(partition)
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, Offsets] = {}
        #: For each topic, the groups that have or had offsets for it.
        self.readers: dict[str, set[str]] = {}
        self.open_transactions = OpenTransactions()
        self.ended_while_loading: list[tuple[int, bool]] = []  # producer, and whether it has committed

    def offsets_of(self, group_id: str) -> Offsets:
        """The offsets of a group, for adding to them."""
        return self.offsets.setdefault(group_id, Offsets())

    def reads(self, group_id: str, topic: str) -> None:
        """Note that a group gets an offset for a topic."""
        topics = self.offsets_of(group_id).topics
        if topic not in topics:
            topics.add(topic)
            self.readers.setdefault(topic, set()).add(group_id)

    def reads_no_more(self, group_id: str, topic: str) -> None:
        """Note that a group has no offset left for a topic."""
        if group_id in self.offsets:
            self.offsets[group_id].topics.discard(topic)
        readers = self.readers.get(topic)
        if readers is not None:
            readers.discard(group_id)
            if not readers:
                del self.readers[topic]

    def tidy(self, group_id: str) -> None:
        """Remove the entry of a group without offsets."""
        offsets = self.offsets.get(group_id)
        if offsets is not None and offsets.is_empty:
            for topic in list(offsets.topics):
                self.reads_no_more(group_id, topic)
            del self.offsets[group_id]


class Shards(OwnedShards[Shard]):
    """All shards of the group coordinator: which group is where, and each one's log."""

    def __init__(self, partition_of: Callable[[str], int], store: Store, outbox: Outbox) -> None:
        super().__init__(partition_of)
        self.groups: dict[str, Group] = {}  # those of all loaded shards
        self._store = store
        self._outbox = outbox

    def add(self, shard: Shard, group: G) -> G:
        shard.groups[group.group_id] = self.groups[group.group_id] = group
        return group

    def remove(self, shard: Shard, group: Group) -> None:
        del shard.groups[group.group_id], self.groups[group.group_id]

    def append(
        self,
        shard: Shard,
        records: list[CoordinatorRecord],
        done: Callable[[ErrorCode], None],
        *,
        producer: ProducerEpoch | None = None,
    ) -> None:
        """Append. `done` runs in a turn; it gets an error if the shard was unloaded meanwhile."""

        def durable(error: ErrorCode) -> None:
            with self._outbox:
                done(error if self.has(shard) else ErrorCode.NOT_LEADER_OR_FOLLOWER)

        self._store.append(shard.partition, records, durable, producer=producer)

    def persist(self, group_id: str, records: Sequence[CoordinatorRecord], done: Callable[[ErrorCode], None]) -> None:
        """Append a group's own records; see `group.Persist`."""
        self.append(self.of(group_id), list(records), done)
