"""The partitions of `__consumer_offsets` that are coordinated here, their groups and offsets as they stand in memory.

A partition is a *shard*: loaded when this broker becomes its owner, unloaded when it no longer is. Requests for groups
in a shard that is loading are refused with COORDINATOR_LOAD_IN_PROGRESS, for others with NOT_COORDINATOR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from barnabas.groupcoord.group import Group
from barnabas.groupcoord.log.records import CoordinatorRecord
from barnabas.groupcoord.log.store import ProducerEpoch, Store
from barnabas.groupcoord.offsets.committed import Offsets
from barnabas.groupcoord.offsets.open_transactions import OpenTransactions
from barnabas.groupcoord.outbox import Outbox
from barnabas.wire.errors import ErrorCode, KafkaError

G = TypeVar("G", bound=Group)


class Shard:
    """One partition; `is_loaded` when the log has been read to its end."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.is_loaded = False
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, Offsets] = {}
        #: By topic, the groups that have or had offsets of it.
        self.readers: dict[str, set[str]] = {}
        self.open_transactions = OpenTransactions()
        self.ended_while_loading: list[tuple[int, bool]] = []  # producer, and whether it has committed

    def offsets_of(self, group_id: str) -> Offsets:
        """The offsets of a group, to be added to."""
        return self.offsets.setdefault(group_id, Offsets())

    def reads(self, group_id: str, topic: str) -> None:
        """A group gets an offset of a topic."""
        topics = self.offsets_of(group_id).topics
        if topic not in topics:
            topics.add(topic)
            self.readers.setdefault(topic, set()).add(group_id)

    def reads_no_more(self, group_id: str, topic: str) -> None:
        """A group has no offset of a topic."""
        if group_id in self.offsets:
            self.offsets[group_id].topics.discard(topic)
        readers = self.readers.get(topic)
        if readers is not None:
            readers.discard(group_id)
            if not readers:
                del self.readers[topic]

    def tidy(self, group_id: str) -> None:
        """Forget the entry of a group that has no offsets."""
        offsets = self.offsets.get(group_id)
        if offsets is not None and offsets.is_empty:
            for topic in list(offsets.topics):
                self.reads_no_more(group_id, topic)
            del self.offsets[group_id]


class Shards:
    """All shards of a coordinator: which group is where, and the log of each."""

    def __init__(self, partition_of: Callable[[str], int], store: Store, outbox: Outbox) -> None:
        self.by_partition: dict[int, Shard] = {}
        self.groups: dict[str, Group] = {}  # of all loaded shards
        self.partition_of = partition_of
        self._store = store
        self._outbox = outbox

    def of(self, group_id: str) -> Shard:
        """The loaded shard of a group. Raises KafkaError if it is not here or not yet."""
        shard = self.by_partition.get(self.partition_of(group_id))
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{group_id} is coordinated elsewhere")
        if not shard.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"partition {shard.partition} is being read")
        return shard

    def has(self, shard: Shard) -> bool:
        """Whether it has not been unloaded since."""
        return self.by_partition.get(shard.partition) is shard

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
        """Append; `done` runs in a turn, and hears of a failure if the shard has gone meanwhile."""

        def durable(error: ErrorCode) -> None:
            with self._outbox:
                done(error if self.has(shard) else ErrorCode.NOT_LEADER_OR_FOLLOWER)

        self._store.append(shard.partition, records, durable, producer=producer)

    def persist(self, group_id: str, records: Sequence[CoordinatorRecord], done: Callable[[ErrorCode], None]) -> None:
        """Append records of a group itself; see `group.Persist`."""
        self.append(self.of(group_id), list(records), done)
