"""A transaction coordinator with a clock that the test moves, a store that it releases, and partitions in memory.

The partitions are not a model: storage's own `ProducerState` decides which writes are allowed.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from barnabas.groupcoord.tests.harness import ORDERS, PAYMENTS, Clock, MemoryStore, Reply, TopicList
from barnabas.groupcoord.transactions.config import TransactionConfig
from barnabas.groupcoord.transactions.coordinator import TransactionCoordinator
from barnabas.groupcoord.transactions.image import TransactionImage
from barnabas.groupcoord.transactions.state import V1, V2, State
from barnabas.storage.producer_state import ProducerState
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.batch import Marker, Record, build_batch, parse_header
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

PARTITIONS = 4
CONFIG = TransactionConfig(transaction_state_log_num_partitions=PARTITIONS)
NEVER_USED = 1_000


class Entry(NamedTuple):
    """An entry of a partition's log: a batch, or the marker of the transaction that began at `first_open`."""

    producer_id: int
    epoch: int
    value: object = None
    marker: Marker | None = None
    first_open: int | None = None


class Partition:
    """One partition's log; everything is durable at once."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.producers = ProducerState()

    def append(self, producer_id: int, epoch: int, sequence: int, value: object) -> None:
        """A transactional batch of one record. Raises KafkaError."""
        data = build_batch(
            [Record(None, b"", 0)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        header = parse_header(data)
        if self.producers.check(header) is None:
            self.producers.record(header, len(self.log), 0)
            self.log.append(Entry(producer_id, epoch, value))

    def end(self, marker: Marker, new_epoch: bool) -> None:
        """Append a marker. Raises KafkaError."""
        self.producers.check_marker(marker, new_epoch=new_epoch)
        first = self.producers.open_transaction(marker.producer_id)
        self.producers.end_transaction(marker, len(self.log), 0)
        self.log.append(Entry(marker.producer_id, marker.producer_epoch, None, marker, first))


class MemoryMarkers:
    """Writes markers at once; after `hold()` only when the test releases them."""

    def __init__(self, partitions: dict[TopicPartition, Partition]) -> None:
        self.partitions = partitions
        self.waiting: deque[tuple[TopicPartition, Marker, Callable[[ErrorCode], None], bool]] = deque()
        self.is_held = False
        self.fails_with = ErrorCode.NONE

    def write(
        self,
        where: TopicPartition,
        marker: Marker,
        done: Callable[[ErrorCode], None],
        *,
        new_epoch: bool,
        wanted: Callable[[], bool],
    ) -> None:
        self.waiting.append((where, marker, done, new_epoch))
        if not self.is_held:
            self.release(self.fails_with)

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Let the oldest marker be written or fail."""
        where, marker, done, new_epoch = self.waiting.popleft()
        partition = self.partitions.get(where)
        if error:
            done(error)
        elif partition is None:
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            try:
                partition.end(marker, new_epoch)
            except KafkaError as refusal:
                nothing_open = partition.producers.open_transaction(marker.producer_id) is None
                done(ErrorCode.NONE if nothing_open else refusal.code)
                return
            done(ErrorCode.NONE)

    def release_all(self) -> None:
        while self.waiting:
            self.release()


class World:
    """One coordinator that owns all partitions, and short forms of the requests."""

    def __init__(self, config: TransactionConfig = CONFIG, *, store: MemoryStore | None = None) -> None:
        self.config = config
        self.clock = Clock()
        self.store = store or MemoryStore()
        self.topics = TopicList(ORDERS, PAYMENTS)
        self.partitions = {
            (topic.name, index): Partition() for topic in self.topics.topics for index in range(topic.partitions)
        }
        self.partitions |= {("__consumer_offsets", index): Partition() for index in range(50)}
        self.markers = MemoryMarkers(self.partitions)
        self.ids = itertools.count(NEVER_USED)
        self.ids_fail: KafkaError | None = None
        self.coordinator = self.start()

    def _new_id(self, given: Callable[[int | KafkaError], None]) -> None:
        given(self.ids_fail or next(self.ids))

    def start(self) -> TransactionCoordinator:
        """A coordinator that has read the store, as after a restart."""
        self.coordinator = TransactionCoordinator(
            self.config,
            self.store,
            self.markers,
            self.clock,
            topics=self.topics,
            group_partition_of=lambda group: len(group),
            new_producer_id=self._new_id,
            wall_ms=self.clock.wall_ms,
        )
        for partition in range(PARTITIONS):
            image = TransactionImage()
            for record in self.store.log[partition]:
                image.apply(record.key, record.value)
            self.coordinator.finish_load(self.coordinator.begin_load(partition), image)
        return self.coordinator

    def pass_time(self, seconds: float) -> None:
        """Let time pass; each deadline on the way fires when it is due."""
        end = self.clock.now + seconds
        while (due := self.coordinator.deadlines.next()) <= end:
            self.clock.now = max(due, self.clock.now)
            self.coordinator.deadlines.fire_due()
        self.clock.now = end

    def state(self, name: str = "t") -> State:
        return self.coordinator.shards.find(name)[1].state

    def status(self, name: str = "t") -> str:
        return self.state(name).status.told

    # --- requests -----------------------------------------------------------------------------------------------------

    def init(
        self,
        name: str | None = "t",
        *,
        producer: tuple[int, int] = (-1, -1),
        timeout_ms: int = 60_000,
        version: int = 5,
        client: str = "10.0.0.1",
    ) -> Reply[InitProducerIdResponse]:
        reply: Reply[InitProducerIdResponse] = Reply()
        request = InitProducerIdRequest(name, timeout_ms, *producer)
        self.coordinator.init_producer_id(request, version=version, client=client, reply=reply)
        return reply

    def producer(self, name: str = "t", **more: int) -> tuple[int, int]:
        """A new producer of an id: its id and epoch."""
        answer = self.init(name, **more).get()  # type: ignore[arg-type]
        assert not answer.error_code
        return answer.producer_id, answer.producer_epoch

    def add(
        self,
        producer: tuple[int, int],
        *places: TopicPartition,
        name: str = "t",
        version: int = 3,
        verify: bool = False,
    ) -> Reply[AddPartitionsToTxnResponse]:
        reply: Reply[AddPartitionsToTxnResponse] = Reply()
        topics = [AddPartitionsToTxnTopic(topic, [index]) for topic, index in places or (("orders", 0),)]
        if version < 4:
            request = AddPartitionsToTxnRequest([], name, *producer, topics)
        else:
            request = AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction(name, *producer, verify, topics)])
        self.coordinator.add_partitions(request, version=version, reply=reply)
        return reply

    def add_error(
        self,
        producer: tuple[int, int],
        *places: TopicPartition,
        name: str = "t",
        version: int = 3,
        verify: bool = False,
    ) -> ErrorCode:
        """The error of the first partition."""
        answer = self.add(producer, *places, name=name, version=version, verify=verify).get()
        topics = answer.results_by_topic_v3_and_below if version < 4 else answer.results_by_transaction[0].topic_results
        return ErrorCode(topics[0].results_by_partition[0].partition_error_code)

    def add_implicitly(self, producer: tuple[int, int], *places: TopicPartition, name: str = "t") -> Reply[ErrorCode]:
        """Add partitions as Produce and TxnOffsetCommit do in version 2 of transactions."""
        reply: Reply[ErrorCode] = Reply()
        self.coordinator.add(name, *producer, frozenset(places or (("orders", 0),)), V2, reply)
        return reply

    def add_offsets(self, producer: tuple[int, int], group: str = "g", name: str = "t", version: int = 3) -> ErrorCode:
        reply: Reply[AddOffsetsToTxnResponse] = Reply()
        request = AddOffsetsToTxnRequest(name, *producer, group)
        self.coordinator.add_offsets(request, version=version, reply=reply)
        return ErrorCode(reply.get().error_code)

    def end(
        self, producer: tuple[int, int], *, committed: bool = True, name: str = "t", version: int = 5
    ) -> Reply[EndTxnResponse]:
        reply: Reply[EndTxnResponse] = Reply()
        self.coordinator.end(EndTxnRequest(name, *producer, committed), version=version, reply=reply)
        return reply

    def end_error(
        self, producer: tuple[int, int], *, committed: bool = True, name: str = "t", version: int = 5
    ) -> ErrorCode:
        return ErrorCode(self.end(producer, committed=committed, name=name, version=version).get().error_code)

    def write(
        self, producer: tuple[int, int], where: TopicPartition = ("orders", 0), *, sequence: int = 0, name: str = "t"
    ) -> None:
        """Write a batch as Produce does: verify and append it at once. Raises KafkaError."""
        self.coordinator.verify(name, *producer, where)
        self.partitions[where].append(*producer, sequence, name)

    def markers_in(self, where: TopicPartition = ("orders", 0)) -> list[tuple[int, bool]]:
        """Epoch and outcome of the markers that ended something."""
        entries = [each for each in self.partitions[where].log if each.first_open is not None]
        return [(each.epoch, each.marker.committed) for each in entries if each.marker is not None]


__all__ = ["CONFIG", "NEVER_USED", "PARTITIONS", "V1", "V2", "Entry", "MemoryStore", "Partition", "Reply", "World"]
