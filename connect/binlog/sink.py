"""Writes messages and positions to topics, with one Kafka transaction for each chunk."""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.client import admin
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, RefusedError, check
from barnabas.client.partitioner import murmur2
from barnabas.client.produce import Batch
from barnabas.client.transactional import TransactionalProducer, write
from barnabas.connect.binlog import oversize
from barnabas.connect.binlog.place import TOPIC, Position, make_topic, positions
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.produce import PartitionProduceResponse

TRANSACTION_MS = 60_000
#: A short patience: the subscription itself retries.
_PATIENCE_SECONDS = 5.0
_BATCH_BYTES = 900_000
#: A broker reads requests of at most 100 MiB (socket.request.max.bytes).
_REQUEST_BYTES = 99 << 20
#: The most bytes of a batch without its records, and of a record without its key, value and header values.
_BATCH_HEAD, _RECORD_HEAD = 61, 150
#: A topic with a lower limit is not suitable for parts.
_LEAST_PART = 512
_MOST_BYTES, _SEGMENT_BYTES, _POLICY = "max.message.bytes", "segment.bytes", "cleanup.policy"
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
Header = tuple[str, bytes]
Answers = dict[TopicPartition, PartitionProduceResponse]


class Out(NamedTuple):
    """A message for a topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int


class _Room(NamedTuple):
    """A topic's limits: bytes of a batch, and of a segment. A compacted topic keeps only the last record of a key."""

    bytes: int
    segment: int
    compacted: bool


class _Waiting:
    """What a partition still has to receive: batches that fit it, each of at least one record."""

    __slots__ = ("_most", "_size", "batches", "sequence")

    def __init__(self, most: int) -> None:
        self._most, self._size = most, most
        self.batches: deque[list[Record]] = deque()
        self.sequence = 0

    def add(self, message: Out, size: int) -> None:
        self._size += size
        if self._size > self._most:
            self.batches.append([])
            self._size = size
        self.batches[-1].append(Record(message.key, message.value, message.timestamp, message.headers))


class TooLargeError(Exception):
    """A message is larger than its topic takes; the text has the remedy."""


class OtherReaderError(Exception):
    """Another reader has taken the subscription over."""


class Sink:
    """One subscription's writer. All calls block; ClientError is raised if the broker cannot be asked."""

    def __init__(
        self,
        servers: str,
        name: str,
        partitions: int,
        configs: dict[str, str],
        way: str = oversize.STOP,
        *,
        in_order: bool = False,
    ) -> None:
        """`way`: what to do with a message too large for its topic. `in_order`: all goes to one partition."""
        self._servers, self._name, self._way, self._in_order = servers, name, way, in_order
        self._partitions, self._configs = partitions, configs
        self._cluster: Cluster | None = None
        self._producer: TransactionalProducer | None = None
        self._counts: dict[str, int] = {}
        self._rooms: dict[str, _Room] = {}

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def begin(self) -> Position | None:
        """Take over the subscription, and find its position. None for a new one."""
        self.close()
        self._rooms.clear()
        cluster = self._cluster = Cluster(self._servers, patience=_PATIENCE_SECONDS)
        make_topic(cluster)
        self._producer = TransactionalProducer(cluster, f"barnabas.binlog.{self._name}", timeout_ms=TRANSACTION_MS)
        self._producer.begin()
        return positions(cluster).get(self._name)

    def write(self, messages: Sequence[Out], position: Position) -> None:
        """Write everything or nothing. Raises TooLargeError, OtherReaderError."""
        began = time.monotonic()
        producer = self._producer
        assert producer is not None
        waiting: dict[TopicPartition, _Waiting] = {}
        for message in messages:
            key = (message.topic, self._partition(message))
            size = _size(message)
            room = self._room(message.topic).bytes - _BATCH_HEAD
            queue = waiting.get(key)
            if queue is None:
                queue = waiting[key] = _Waiting(min(room, _BATCH_BYTES))
            if size <= room:
                queue.add(message, size)
            else:
                for part in self._fitted(message):
                    queue.add(part, _size(part))
        waiting[TOPIC, 0] = _Waiting(_BATCH_BYTES)
        waiting[TOPIC, 0].batches.append([position.record(self._name)])
        try:
            while waiting:
                self._produce(producer, waiting)
            producer.end(commit=True)
        except RefusedError as error:
            if error.code in _FENCED:
                if time.monotonic() - began >= TRANSACTION_MS / 1000:
                    seconds = TRANSACTION_MS // 1000
                    raise ClientError(f"a transaction took longer than {seconds} s, and was aborted") from None
                raise OtherReaderError(
                    f"another reader has taken over {self._name}: there can be one at a time"
                ) from None
            raise

    def _produce(self, producer: TransactionalProducer, waiting: dict[TopicPartition, _Waiting]) -> None:
        """Send one batch for each partition with records left, as far as they fit one request."""
        batches: list[Batch] = []
        size = 0
        for key, queue in list(waiting.items()):
            records = queue.batches[0]
            data = build_batch(
                records,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=queue.sequence,
                is_transactional=True,
            )
            size += len(data)
            if batches and size > _REQUEST_BYTES:
                break
            queue.sequence += len(records)
            queue.batches.popleft()
            if not queue.batches:
                del waiting[key]
            batches.append(Batch(*key, data))
        told = self._sent(producer, batches)
        for (topic, partition), answer in told.items():
            if answer.error_code in _TOO_LARGE and topic in self._rooms:
                self._look_again(topic, max(len(batch.data) for batch in batches if batch[:2] == (topic, partition)))
            check(answer.error_code, f"Produce to {topic}-{partition}", answer.error_message)

    # --- sizes --------------------------------------------------------------------------------------------------------

    def _room(self, topic: str) -> _Room:
        known = self._rooms.get(topic)
        if known is None:
            known = self._rooms[topic] = self._asked_room(topic)
        return known

    def _asked_room(self, topic: str) -> _Room:
        assert self._cluster is not None
        keys = [_MOST_BYTES, _SEGMENT_BYTES, _POLICY]
        try:
            told = admin.topic_configs(self._cluster, [topic], keys, defaults=True).get(topic, {})
        except RefusedError:  # a client that may write to a topic may not be allowed to see its configuration
            told = {}
        most, segment = (int(told.get(key, _REQUEST_BYTES)) for key in (_MOST_BYTES, _SEGMENT_BYTES))
        return _Room(min(most, segment, _REQUEST_BYTES), segment, "compact" in told.get(_POLICY, ""))

    def _look_again(self, topic: str, size: int) -> None:
        """A batch was too large: has the topic's limit been lowered? Raises ClientError if so, else TooLargeError."""
        room = self._asked_room(topic)
        if room.bytes < self._rooms[topic].bytes:
            raise ClientError(f"{topic} takes only {room.bytes:,} bytes now, not {self._rooms[topic].bytes:,}")
        raise TooLargeError(f"a change has {size:,} bytes, which {topic} does not take{_raised(topic, room, size)}")

    def _fitted(self, message: Out) -> list[Out]:
        """Make an oversized message fit its topic. Raises TooLargeError."""
        topic, value = message.topic, message.value or b""
        room = self._room(topic)
        told = {name: given.decode() for name, given in message.headers}
        where = f"message {told.get('barnabas.index')} of {told.get('barnabas.gtid') or 'the snapshot'}"
        size = _BATCH_HEAD + _size(message)
        said = f"{where} has {size:,} bytes, and {topic} takes {room.bytes:,}"
        most = room.bytes - size + len(value)
        if self._way == oversize.STOP or most < _LEAST_PART:
            raise TooLargeError(f"{said}{_raised(topic, room, size)}, or choose --oversize split or truncate")
        if self._way == oversize.TRUNCATE:
            cut = oversize.truncated(value, most)
            if cut is None:
                raise TooLargeError(f"{said}, and cutting its texts does not help{_raised(topic, room, size)}")
            return [message._replace(value=cut)]
        if room.compacted:
            raise TooLargeError(
                f"{said}; of its parts, which have one key, compaction would leave the last"
                f"{_raised(topic, room, size)}, or choose --oversize truncate"
            )
        parts = oversize.split(value, most)
        return [
            message._replace(value=part, headers=(*message.headers, (oversize.PART, b"%d/%d" % (number, len(parts)))))
            for number, part in enumerate(parts, 1)
        ]

    # --- sending ------------------------------------------------------------------------------------------------------

    def _sent(
        self, producer: TransactionalProducer, batches: list[Batch]
    ) -> dict[TopicPartition, PartitionProduceResponse]:
        """The broker's answers by partition."""
        assert self._cluster is not None
        return write(self._cluster, producer.transactional_id, batches, patience=_PATIENCE_SECONDS)

    def _partition(self, message: Out) -> int:
        """The partition for its key; with `in_order`, the first one."""
        count = self._counts.get(message.topic)
        if count is None:
            count = self._counts[message.topic] = self._make(message.topic)
        if self._in_order:
            return 0
        if message.key is None:
            return zlib.crc32(message.topic.encode()) % count  # one partition, to keep the server's order
        return murmur2(message.key) % count

    def _make(self, topic: str) -> int:
        """The topic's number of partitions; the topic is created if it does not exist."""
        assert self._cluster is not None
        made = admin.create_topic(self._cluster, topic, self._configs, partitions=self._partitions)
        if made.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            check(made.error_code, f"Topic {topic}", made.error_message)
        until = time.monotonic() + 10
        while True:
            try:
                return len(self._cluster.leaders(topic))
            except ClientError:  # a broker may take a moment to learn what its controller has created
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)


def _raised(topic: str, room: _Room, size: int) -> str:
    """Which limits to raise so that the topic takes the row, and an UPDATE of it, which has the row twice."""
    both = 2 * size
    if size > _REQUEST_BYTES:
        return f": no request has more than {_REQUEST_BYTES:,}"
    enough = min(1 << both.bit_length(), _REQUEST_BYTES)
    keys = [_MOST_BYTES, *([_SEGMENT_BYTES] if room.segment < enough else [])]
    remedy = f": barnabas topics alter {topic}{''.join(f' --config {key}={enough}' for key in keys)}"
    if both > _REQUEST_BYTES:
        remedy += f" (an UPDATE of it, with the row before and after, exceeds the {_REQUEST_BYTES:,} of a request)"
    return remedy


def _size(message: Out) -> int:
    """The most bytes that the message takes in a batch."""
    headers = sum([len(value) for _, value in message.headers])
    return _RECORD_HEAD + headers + len(message.key or b"") + len(message.value or b"")
