"""The group coordinator: which partitions of `__consumer_offsets` are coordinated here, and the parts that serve them.

It is a state machine without I/O: time comes from a clock, records go to a `Store`, answers to the reply that came with
the request, and whoever runs it fires its `deadlines` when they are due (`groupcoord.timers` does). All calls are made
from one thread.

    membership        JoinGroup, SyncGroup, Heartbeat, LeaveGroup: of classic groups
    offset_requests   OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete
    admin             ListGroups, DescribeGroups, DeleteGroups
    offsets           what is committed and pending; deletions and transactions
    deleted_topics    the offsets of topics that are gone
    elsewhere         a second place for offsets, beside the log or instead of it
    retention         the expiry of offsets, and of groups that have nothing left
    shard             which group is where, and the way to its log
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

    `clock` gives monotonic seconds, `wall_ms` the time that records are stamped with, `new_suffix` the unique part of a
    member id. Replies are called exactly once each, when the answer is known; they must not block.
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
        # The requests, by their handlers' names: the parts' own methods, so that no call stands between.
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
        """The partition of `__consumer_offsets` that a group belongs to: what FindCoordinator looks up.

        The topic's own count decides: the configured one is only what a new topic would get.
        """
        topic = self._topics.by_name(OFFSETS_TOPIC)
        count = self._config.offsets_topic_num_partitions if topic is None else topic.partitions
        return group_partition(group_id, count)

    def begin_load(self, partition: int) -> Shard:
        """This broker has become the owner; until `finish_load` its groups answer COORDINATOR_LOAD_IN_PROGRESS.

        What is returned names this loading to `finish_load`.
        """
        self.unload(partition)
        shard = self.shards.by_partition[partition] = Shard(partition)
        return shard

    def abandon_load(self, loading: Shard) -> None:
        """It could not be read: the partition counts as not owned."""
        if self.shards.has(loading):
            self.unload(loading.partition)

    def finish_load(self, loading: Shard, image: PartitionImage) -> None:
        """The log has been read to its end. Nothing happens if the partition was unloaded meanwhile."""
        shard = loading
        if not self.shards.has(shard) or shard.is_loaded:
            return
        for producer_id, committed in shard.ended_while_loading:  # the reading may have come by before their markers
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
        """This broker no longer owns the partition. Waiting members are sent away with NOT_COORDINATOR."""
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
        """All groups of loaded partitions, by their ids."""
        return self.shards.groups

    # --- offsets elsewhere --------------------------------------------------------------------------------------------

    def keep_elsewhere(self, elsewhere: Elsewhere | None) -> None:
        """From now on offsets are kept there, too (or there alone); None for the log alone."""
        self._offsets.elsewhere = elsewhere
        for shard in self.shards.by_partition.values():
            if elsewhere is not None and shard.is_loaded:
                elsewhere.loaded(shard.partition)

    def in_turn(self, call: Callable[[], None]) -> None:
        """Call what changes state or replies; the replies leave when it returns."""
        with self._outbox:
            call()

    def committed_offsets(self, partition: int) -> Iterator[tuple[str, TopicPartition, OffsetCommitValue]]:
        """Every offset of a partition that counts now."""
        return self._offsets.committed(partition)

    def adopt_offsets(self, group_id: str, found: Mapping[TopicPartition, OffsetCommitValue]) -> None:
        """Take positions of a group with members that are further elsewhere into the log.

        A group without members keeps what it has: who looks at it changes nothing.
        """
        with self._outbox:
            shard = self.shards.of(group_id)
            group = shard.groups.get(group_id)
            if group is not None and not group.is_empty:
                self._offsets.adopt(shard, group_id, found)

    # --- what happens in the cluster ----------------------------------------------------------------------------------

    def topic_deleted(self, name: str, topic_id: bytes = ZERO_UUID) -> None:
        """Forget all offsets of a topic that is gone; with its id, only those of that topic, not of one named alike."""
        with self._outbox:
            self._deleted_topics.forget(name, topic_id)

    @property
    def is_forgetting(self) -> bool:
        """Whether offsets of deleted topics are left that have yet to go."""
        return self._deleted_topics.is_busy

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """The marker of a transaction that wrote offsets into this partition is durable."""
        shard = self.shards.by_partition.get(partition)
        if shard is None:
            return
        if shard.is_loaded:
            self._offsets.end_transaction(shard, producer_id, committed=committed)
        else:
            shard.ended_while_loading.append((producer_id, committed))
