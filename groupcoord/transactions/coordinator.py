"""The transaction coordinator: which partitions of `__transaction_state` are coordinated here, and the parts for them.

It is a state machine without I/O, like the group coordinator: time comes from a clock, records go to a `Store`, markers
to `Markers`, answers to the reply that came with the request. All calls are made from one thread.

    producers    InitProducerId
    requests     AddPartitionsToTxn, AddOffsetsToTxn, EndTxn; the checks for Produce and TxnOffsetCommit
    completion   from the decision to the markers in all partitions
    admin        DescribeTransactions, ListTransactions
    expiry       ids that are no longer used
    shard        the partition of each id, and writes to its log
    state        one id's states, and the steps between them
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.groupcoord.deadlines import Deadlines
from barnabas.groupcoord.log.store import Store
from barnabas.groupcoord.outbox import Outbox
from barnabas.groupcoord.partitions import group_partition
from barnabas.groupcoord.topics import Topics
from barnabas.groupcoord.transactions.admin import TransactionAdmin
from barnabas.groupcoord.transactions.completion import Completion
from barnabas.groupcoord.transactions.config import TransactionConfig
from barnabas.groupcoord.transactions.expiry import Expiry
from barnabas.groupcoord.transactions.image import TransactionImage
from barnabas.groupcoord.transactions.markers import Markers
from barnabas.groupcoord.transactions.producers import NewProducerId, Producers
from barnabas.groupcoord.transactions.requests import TransactionRequests
from barnabas.groupcoord.transactions.shard import TransactionShard, TransactionShards
from barnabas.wire.internal_topics import TRANSACTIONS_TOPIC

log = logging.getLogger(__name__)


class TransactionCoordinator:
    """All transactional ids that this broker coordinates; one object per broker.

    `clock` gives monotonic seconds, `wall_ms` the timestamp for records; `group_partition_of` gives the partition of
    `__consumer_offsets` for a group, or raises KafkaError if that is not known.
    """

    def __init__(
        self,
        config: TransactionConfig,
        store: Store,
        markers: Markers,
        clock: Callable[[], float],
        *,
        topics: Topics,
        group_partition_of: Callable[[str], int],
        new_producer_id: NewProducerId,
        wall_ms: Callable[[], int],
        coordinator_epoch: Callable[[int], int] = lambda partition: 0,
    ) -> None:
        self._config = config
        self._topics = topics
        self._coordinator_epoch = coordinator_epoch
        self._outbox = outbox = Outbox()
        self.deadlines = deadlines = Deadlines(clock, around=outbox)
        self.shards = shards = TransactionShards(
            self.partition_of, store, outbox, deadlines, wall_ms, config.most_bytes
        )
        self._completion = completion = Completion(shards, markers, deadlines, outbox, wall_ms)
        self._expiry = Expiry(config, shards, deadlines, outbox, wall_ms)
        # The request handlers: the methods of the parts themselves, which saves a call.
        self.init_producer_id = Producers(config, shards, completion, new_producer_id, outbox, wall_ms).init
        requests = TransactionRequests(
            config, shards, completion, topics, group_partition_of, new_producer_id, outbox, wall_ms
        )
        self.add_partitions, self.add_offsets, self.end = requests.add_partitions, requests.add_offsets, requests.end
        self.add, self.verify = requests.add, requests.verify
        admin = TransactionAdmin(shards, wall_ms)
        self.describe, self.list = admin.describe, admin.list

    def partition_of(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` for an id, as FindCoordinator looks it up.

        The topic's own partition count decides; the configured count is only for a new topic.
        """
        topic = self._topics.by_name(TRANSACTIONS_TOPIC)
        count = self._config.transaction_state_log_num_partitions if topic is None else topic.partitions
        return group_partition(transactional_id, count)

    def begin_load(self, partition: int) -> TransactionShard:
        """This broker has become the owner; until `finish_load` its ids answer COORDINATOR_LOAD_IN_PROGRESS.

        The result is passed to `finish_load` when the load is done.
        """
        self.unload(partition)
        shard = TransactionShard(partition, self._coordinator_epoch(partition))
        self.shards.by_partition[partition] = shard
        return shard

    def abandon_load(self, loading: TransactionShard) -> None:
        """The log could not be read: the partition counts as not owned."""
        if self.shards.has(loading):
            self.unload(loading.partition)

    def finish_load(self, loading: TransactionShard, image: TransactionImage) -> None:
        """The log was read to its end: complete the decided transactions. Does nothing if it was unloaded since."""
        shard = loading
        if not self.shards.has(shard) or shard.is_loaded:
            return
        shard.is_loaded = True
        with self._outbox:
            decided = 0
            for transactional_id, state in image.states.items():
                transaction = self.shards.add(shard, transactional_id, state)
                if state.status.is_prepared:
                    decided += 1
                    self._completion.go_on(shard, transaction)
        level = logging.INFO if image.states else logging.DEBUG  # most partitions are empty
        log.log(
            level,
            "partition %d loaded: %d transactional ids, %d transactions to complete",
            shard.partition,
            len(image.states),
            decided,
        )

    def unload(self, partition: int) -> None:
        """This broker no longer owns the partition. Waiting requests get NOT_COORDINATOR."""
        shard = self.shards.by_partition.pop(partition, None)
        if shard is None:
            return
        with self._outbox:
            for transaction in list(shard.transactions.values()):
                self.shards.remove(shard, transaction)
