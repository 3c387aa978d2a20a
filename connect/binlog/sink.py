"""Messages and positions into topics, a Kafka transaction for each chunk."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.client import admin
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, check
from barnabas.client.partitioner import murmur2
from barnabas.client.produce import Batch, produce
from barnabas.client.transactional import NOT_YET, TransactionalProducer
from barnabas.connect.binlog.place import TOPIC, Position, make_topic, positions
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.produce import PartitionProduceResponse

TRANSACTION_MS = 60_000
#: The subscription itself tries again.
_PATIENCE_SECONDS = 5.0
_BATCH_BYTES = 900_000
_FENCED = ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
Header = tuple[str, bytes]
Answers = dict[TopicPartition, PartitionProduceResponse]


class Out(NamedTuple):
    """A message for a topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int


class TooLargeError(Exception):
    """A message is larger than its topic takes; the text has the remedy."""


class OtherReaderError(Exception):
    """Another reader has taken the subscription over."""


class Sink:
    """One subscription's writer. Everything blocks; raises ClientError where the broker cannot be asked."""

    def __init__(self, servers: str, name: str, partitions: int, configs: dict[str, str]) -> None:
        self._servers, self._name = servers, name
        self._partitions, self._configs = partitions, configs
        self._cluster: Cluster | None = None
        self._producer: TransactionalProducer | None = None
        self._counts: dict[str, int] = {}

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def begin(self) -> Position | None:
        """Take the subscription over, and find out how far it is. None for a new one."""
        self.close()
        cluster = self._cluster = Cluster(self._servers, patience=_PATIENCE_SECONDS)
        make_topic(cluster)
        self._producer = TransactionalProducer(cluster, f"barnabas.binlog.{self._name}", timeout_ms=TRANSACTION_MS)
        self._producer.begin()
        return positions(cluster).get(self._name)

    def write(self, messages: Sequence[Out], position: Position) -> None:
        """All of it, or nothing. Raises TooLargeError, OtherReaderError."""
        producer = self._producer
        assert producer is not None
        records: dict[tuple[str, int], list[Record]] = {}
        for message in messages:
            key = (message.topic, self._partition(message))
            records.setdefault(key, []).append(Record(message.key, message.value, message.timestamp, message.headers))
        records[TOPIC, 0] = [position.record(self._name)]
        sequences = dict.fromkeys(records, 0)
        try:
            while records:
                self._produce(producer, records, sequences)
            producer.end(commit=True)
        except ClientError as error:
            if any(code in str(error) for code in _FENCED):
                raise OtherReaderError(
                    f"another reader has taken over {self._name}: there can be one at a time"
                ) from None
            raise

    def _produce(
        self,
        producer: TransactionalProducer,
        records: dict[tuple[str, int], list[Record]],
        sequences: dict[tuple[str, int], int],
    ) -> None:
        """A batch for each partition that has records left."""
        batches = []
        for key in list(records):
            mine, rest = _first(records[key])
            if rest:
                records[key] = rest
            else:
                del records[key]
            data = build_batch(
                mine,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=sequences[key],
                is_transactional=True,
            )
            sequences[key] += len(mine)
            batches.append(Batch(*key, data))
        told = self._sent(producer, batches)
        for (topic, partition), answer in told.items():
            if answer.error_code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
                size = max(len(batch.data) for batch in batches if batch[:2] == (topic, partition))
                raise TooLargeError(
                    f"a change has {size:,} bytes, which {topic} does not take: barnabas topics alter {topic} "
                    f"--config max.message.bytes={2 * size}"
                )
            check(answer.error_code, f"Produce to {topic}-{partition}", answer.error_message)

    def _sent(
        self, producer: TransactionalProducer, batches: list[Batch]
    ) -> dict[TopicPartition, PartitionProduceResponse]:
        """The answers; the partitions of the transaction before may have to be waited for."""
        assert self._cluster is not None
        found: Answers = {}
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            told = produce(self._cluster, batches, transactional_id=producer.transactional_id)
            found.update(told)
            batches = [batch for batch in batches if told[batch.topic, batch.partition].error_code in NOT_YET]
            if not batches or time.monotonic() > until:
                return found
            time.sleep(0.01)

    def _partition(self, message: Out) -> int:
        count = self._counts.get(message.topic)
        if count is None:
            count = self._counts[message.topic] = self._make(message.topic)
        if message.key is None:
            return zlib.crc32(message.topic.encode()) % count  # one partition, so that its order is that of the server
        return murmur2(message.key) % count

    def _make(self, topic: str) -> int:
        """The partitions of a topic, which is made where it is not there."""
        assert self._cluster is not None
        made = admin.create_topic(self._cluster, topic, self._configs, partitions=self._partitions)
        if made.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            check(made.error_code, f"Topic {topic}", made.error_message)
        until = time.monotonic() + 10
        while True:
            try:
                return len(self._cluster.leaders(topic))
            except ClientError:  # a broker may take a moment to know what its controller has made
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)


def _first(records: list[Record]) -> tuple[list[Record], list[Record]]:
    """As many as fit into a batch, at least one; and the rest."""
    size = 0
    for number, record in enumerate(records):
        size += len(record.key or b"") + len(record.value or b"") + 100
        if size > _BATCH_BYTES and number:
            return records[:number], records[number:]
    return records, []
