"""The transaction coordinator in the broker: its store on `__transaction_state`, its markers and its clock."""

from __future__ import annotations

from collections.abc import Callable

import trio

from barnabas.broker.between.peers import Peers
from barnabas.broker.clock import Clock
from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.coordinators.loading import Loading
from barnabas.broker.coordinators.marker_router import MarkerRouter
from barnabas.broker.coordinators.verifying import CoordinatorsElsewhere
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import Listener, MetadataImage, TopicImage
from barnabas.broker.metadata.producer_ids import ProducerIds
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.partitions import Partitions
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.workers import Workers
from barnabas.groupcoord.log.log_store import LogStore
from barnabas.groupcoord.timers import run_timers
from barnabas.groupcoord.transactions.coordinator import TransactionCoordinator
from barnabas.groupcoord.transactions.image import TransactionImage
from barnabas.storage.flusher import Flusher
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.batch import Marker
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

Done = Callable[[ErrorCode], None]


def told_to_writer(error: ErrorCode, *, knows_abortable: bool, adds: bool) -> ErrorCode:
    """The error code of the transaction coordinator, as Produce and TxnOffsetCommit report it to the producer.

    `knows_abortable`: the request's version knows TRANSACTION_ABORTABLE. `adds`: partitions are added by writing to
    them, so the client knows that the previous transaction may be incomplete.
    """
    if error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error == ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    if error in _NOT_NOW or (error == ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error


# Codes that mean that the coordinator cannot tell now: producers try again after each of them.
_NOT_NOW = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class MarkerWriter:
    """Writes markers into the partitions led here. Tells the group coordinator of those that end offsets."""

    def __init__(self, partitions: Partitions, groups: Groups, clock: Clock) -> None:
        self._partitions, self._groups, self._clock = partitions, groups, clock

    def write(self, where: TopicPartition, marker: Marker, done: Done, *, new_epoch: bool) -> None:
        """See `Markers`, with one difference: INVALID_PRODUCER_EPOCH for a producer that has a higher epoch here."""
        try:
            vnode = self._partitions.led(*where)
        except KafkaError as error:
            done(error.code)
            return

        def durable(error: ErrorCode) -> None:
            if not error and where[0] == OFFSETS_TOPIC:
                self._groups.coordinator.end_transaction(where[1], marker.producer_id, committed=marker.committed)
            gone = self._partitions.gone(vnode)
            done(error if gone is None else gone.code)

        try:
            result = vnode.end_transaction(marker, new_epoch=new_epoch, now_ms=self._clock.wall_ms())
            self._groups.durability.after(vnode, result.last_offset, durable)
        except KafkaError as error:
            done(error.code)

    def write_for_coordinator(self, where: TopicPartition, marker: Marker, done: Done, *, new_epoch: bool) -> None:
        """Like `write`, for a coordinator: a higher epoch of a producer without an open transaction is a success."""

        def written(error: ErrorCode) -> None:
            if error == ErrorCode.INVALID_PRODUCER_EPOCH and self._has_nothing_open(where, marker.producer_id):
                error = ErrorCode.NONE
            done(error)

        self.write(where, marker, written, new_epoch=new_epoch)

    def _has_nothing_open(self, where: TopicPartition, producer_id: int) -> bool:
        vnode = self._partitions.get(*where)
        return vnode is not None and vnode.open_transaction(producer_id) is None


class CoordinatorMarkers:
    """The markers of this broker's own coordinator."""

    def __init__(self, writer: MarkerWriter, partitions: Partitions) -> None:
        self._writer, self._partitions = writer, partitions
        #: Sends markers to other nodes; None if there are none.
        self.router: MarkerRouter | None = None

    def write(
        self,
        where: TopicPartition,
        marker: Marker,
        done: Done,
        *,
        new_epoch: bool,
        wanted: Callable[[], bool],
    ) -> None:
        """See `Markers`."""
        if self.router is not None:
            node = self._partitions.elsewhere(*where)
            if node is not None:
                self.router.write(node, where, marker, done, new_epoch=new_epoch, wanted=wanted)
                return
        self._writer.write_for_coordinator(where, marker, done, new_epoch=new_epoch)


class Transactions(Listener):
    """All transactional ids of this broker. The APIs call `coordinator`."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataImage,
        topics: TopicManager,
        partitions: Partitions,
        groups: Groups,
        producer_ids: ProducerIds,
        flusher: Flusher,
        workers: Workers,
        clock: Clock,
        log: EventLog,
    ) -> None:
        self.config = config
        self._topics, self._producer_ids, self._workers = topics, producer_ids, workers
        self.markers = MarkerWriter(partitions, groups, clock)
        self._partitions, self._coordinator_markers = partitions, CoordinatorMarkers(self.markers, partitions)
        #: Asks coordinators on other nodes; None if there are none.
        self.elsewhere: CoordinatorsElsewhere | None = None
        store = LogStore(
            lambda partition: partitions.get(TRANSACTIONS_TOPIC, partition),
            TransactionImage,
            groups.durability,
            clock.wall_ms,
        )
        self.coordinator = TransactionCoordinator(
            config.transaction_config(),
            store,
            self._coordinator_markers,
            trio.current_time,
            topics=groups.known_topics,
            group_partition_of=groups.partition_of,
            new_producer_id=self._new_producer_id,
            wall_ms=clock.wall_ms,
            coordinator_epoch=lambda partition: partitions.leader_epoch(TRANSACTIONS_TOPIC, partition),
        )
        self._loading = Loading(
            TRANSACTIONS_TOPIC, self.coordinator, store, metadata, partitions, log, "transactions.load_failed"
        )

    def connect(self, peers: Peers) -> None:
        """Use other nodes, which lead partitions and coordinate transactions too. Must be called before `start`."""
        self._coordinator_markers.router = MarkerRouter(peers, self._partitions, self._workers)
        patience = self.config.transaction_config().add_partitions_to_txn_retry_backoff_max_ms / 1000
        self.elsewhere = CoordinatorsElsewhere(
            peers, self._partitions, self.coordinator.partition_of, self._workers, patience
        )

    @property
    def verifies(self) -> bool:
        """Whether a transactional batch is accepted only if its partition was added to the transaction."""
        found: bool = self.config["transaction.partition.verification.enable"]
        return found

    async def start(self, nursery: trio.Nursery) -> None:
        """Start the timers and the load from disk. Requests are answered meanwhile."""
        await nursery.start(run_timers, self.coordinator.deadlines)
        self._loading.start(nursery)

    async def ready(self) -> None:
        """Create `__transaction_state` if it does not exist. Raises KafkaError if that fails."""
        await self._topics.internal_topic(TRANSACTIONS_TOPIC)

    def topic_changed(self, before: TopicImage | None, after: TopicImage | None) -> None:
        """Load `__transaction_state` when it is created, and forget all ids when it is deleted."""
        self._loading.topic_changed(before, after)

    def _new_producer_id(self, given: Callable[[int | KafkaError], None]) -> None:
        found = self._producer_ids.at_once()
        if found is not None:
            given(found)
            return

        async def wait() -> None:
            try:
                producer_id: int | KafkaError = await self._producer_ids.next()
            except KafkaError as error:
                producer_id = error
            given(producer_id)

        self._workers.start(wait)
