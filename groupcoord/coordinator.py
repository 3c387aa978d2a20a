"""The group coordinator: the partitions of `__consumer_offsets` that it coordinates, and the parts that serve them.

It is a state machine without I/O. Time comes from a clock; records go to a `Store`; answers go to the reply passed with
the request; and its owner fires its `deadlines` when they are due (`groupcoord.timers` does). All calls are made from
one thread.

    membership        JoinGroup, SyncGroup, Heartbeat, LeaveGroup for classic groups
    offset_requests   OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete
    admin             ListGroups, DescribeGroups, DeleteGroups
    offsets           committed and pending offsets; deletions and transactions
    deleted_topics    the offsets of deleted topics
    elsewhere         a second store for offsets, beside the log or instead of it
    retention         the expiry of offsets, and of groups that then have nothing left
    shard             which group is where, and how to write to its log
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping

from barnabas.groupcoord.admin import Admin
from barnabas.groupcoord.classic.group import ClassicGroup
from barnabas.groupcoord.classic.membership import Membership
from barnabas.groupcoord.config import GroupConfig
from barnabas.groupcoord.deadlines import Deadlines
from barnabas.groupcoord.group import Group, Surroundings
from barnabas.groupcoord.log.image import PartitionImage
from barnabas.groupcoord.log.shard import Shard, Shards
from barnabas.groupcoord.log.store import Store
from barnabas.groupcoord.memory_budget import MemoryBudget
from barnabas.groupcoord.offsets.committed import OffsetManager
from barnabas.groupcoord.offsets.deleted_topics import DeletedTopics
from barnabas.groupcoord.offsets.elsewhere import Elsewhere
from barnabas.groupcoord.offsets.requests import OffsetRequests
from barnabas.groupcoord.offsets.retention import Retention
from barnabas.groupcoord.outbox import Outbox
from barnabas.groupcoord.partitions import group_partition
from barnabas.groupcoord.topics import Topics
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.internal_topics import OFFSETS_TOPIC
from barnabas.wire.records.offset_commit import OffsetCommitValue
from barnabas.wire.types import ZERO_UUID

log = logging.getLogger(__name__)


class GroupCoordinator:
    """All groups that this broker coordinates; one object per broker.

    `clock` gives monotonic seconds, `wall_ms` the timestamps of records, `new_suffix` the unique part of a member id.
    Each reply is called exactly once, when the answer is known; it must not block.
    """

    def __init__(
        self,
        config: GroupConfig,
        store: Store,
        clock: Callable[[], float],
        *,
        topics: Topics,
        wall_ms: Callable[[], int],
        new_suffix: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._config = config
        self._topics = topics
        self._outbox = Outbox()
        self.deadlines = Deadlines(clock, around=self._outbox)
        self.memory = MemoryBudget(config.most_bytes, clock)
        self.shards = Shards(self.partition_of, store, self._outbox)
        around = Surroundings(
            config, self.deadlines, self._outbox, self.shards.persist, self.memory, wall_ms, new_suffix
        )
        self._around = around
        self._offsets = OffsetManager(self.shards, topics, around)
        self._retention = Retention(self.shards, self._offsets, around)
        self._deleted_topics = DeletedTopics(self.shards, self._offsets, around)
        # The requests, by their handlers' names: these are the parts' own methods, which saves a call.
        membership = Membership(self.shards, around)
        self.join, self.sync = membership.join, membership.sync
        self.heartbeat, self.leave = membership.heartbeat, membership.leave
        requests = OffsetRequests(self.shards, self._offsets, topics, around)
        self.commit, self.fetch_offsets, self.delete_offsets = requests.commit, requests.fetch, requests.delete
        self.commit_in_transaction, self.asked_offsets = requests.commit_in_transaction, requests.asked
        admin = Admin(self.shards, self._offsets, around)
        self.list_groups, self.describe, self.delete_groups = admin.list_groups, admin.describe, admin.delete_groups
        self.check_delete, self.deletable_topics = admin.check_delete, requests.deletable_topics

    # --- ownership ----------------------------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` for a group, which FindCoordinator looks up.

        The existing topic's partition count decides: the configured count is only for a new topic.
        """
        topic = self._topics.by_name(OFFSETS_TOPIC)
        count = self._config.offsets_topic_num_partitions if topic is None else topic.partitions
        return group_partition(group_id, count)

    def begin_load(self, partition: int) -> Shard:
        """This broker has become the owner. Until `finish_load`, its groups answer COORDINATOR_LOAD_IN_PROGRESS.

        Pass the returned value to `finish_load`.
        """
        self.unload(partition)
        shard = self.shards.by_partition[partition] = Shard(partition)
        return shard

    def abandon_load(self, loading: Shard) -> None:
        """The log could not be read: the partition counts as not owned."""
        if self.shards.has(loading):
            self.unload(loading.partition)

    def finish_load(self, loading: Shard, image: PartitionImage) -> None:
        """The log has been read to its end. Does nothing if the partition was unloaded meanwhile."""
        shard = loading
        if not self.shards.has(shard) or shard.is_loaded:
            return
        for producer_id, committed in shard.ended_while_loading:  # the reader may have missed their markers
            image.end_transaction(producer_id, committed=committed)
        self._offsets.load(shard, image)
        shard.is_loaded = True
        with self._outbox:
            for group_id in dict.fromkeys([*image.groups, *shard.offsets]):
                group = self.shards.add(shard, ClassicGroup(group_id, self._around))
                if group_id in image.groups:
                    group.restore(image.groups[group_id])
            self._offsets.forget_stale(shard)
        if self._offsets.elsewhere is not None:
            self._offsets.elsewhere.loaded(shard.partition)
        level = logging.INFO if shard.groups or image.offsets else logging.DEBUG  # most partitions hold nothing
        log.log(
            level, "partition %d loaded: %d groups, %d offsets", shard.partition, len(shard.groups), len(image.offsets)
        )

    def unload(self, partition: int) -> None:
        """This broker no longer owns the partition. Waiting members are answered with NOT_COORDINATOR."""
        shard = self.shards.by_partition.pop(partition, None)
        if shard is None:
            return
        if self._offsets.elsewhere is not None:
            self._offsets.elsewhere.unloaded(partition)
        with self._outbox:
            for group in list(shard.groups.values()):
                group.shut_down(ErrorCode.NOT_COORDINATOR)
                self.shards.remove(shard, group)

    @property
    def groups(self) -> dict[str, Group]:
        """All groups of loaded partitions, by id."""
        return self.shards.groups

    # --- offsets elsewhere --------------------------------------------------------------------------------------------

    def keep_elsewhere(self, elsewhere: Elsewhere | None) -> None:
        """From now on, store offsets there, too (or only there); None: store them in the log only."""
        self._offsets.elsewhere = elsewhere
        for shard in self.shards.by_partition.values():
            if elsewhere is not None and shard.is_loaded:
                elsewhere.loaded(shard.partition)

    def in_turn(self, call: Callable[[], None]) -> None:
        """Make a call that changes state or replies. The replies are sent when it returns."""
        with self._outbox:
            call()

    def committed_offsets(self, partition: int) -> Iterator[tuple[str, TopicPartition, OffsetCommitValue]]:
        """Every valid committed offset of a partition."""
        return self._offsets.committed(partition)

    def adopt_offsets(self, group_id: str, found: Mapping[TopicPartition, OffsetCommitValue]) -> None:
        """Take positions into the log that are further in the second store, for a group with members.

        A group without members keeps its positions: looking at it changes nothing.
        """
        with self._outbox:
            shard = self.shards.of(group_id)
            group = shard.groups.get(group_id)
            if group is not None and not group.is_empty:
                self._offsets.adopt(shard, group_id, found)

    # --- what happens in the cluster ----------------------------------------------------------------------------------

    def topic_deleted(self, name: str, topic_id: bytes = ZERO_UUID) -> None:
        """Forget all offsets of a deleted topic. With its id, those of another topic of the same name stay."""
        with self._outbox:
            self._deleted_topics.forget(name, topic_id)

    @property
    def is_forgetting(self) -> bool:
        """Whether there are still offsets of deleted topics to forget."""
        return self._deleted_topics.is_busy

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """The end marker of a transaction that wrote offsets to this partition is durable."""
        shard = self.shards.by_partition.get(partition)
        if shard is None:
            return
        if shard.is_loaded:
            self._offsets.end_transaction(shard, producer_id, committed=committed)
        else:
            shard.ended_while_loading.append((producer_id, committed))
