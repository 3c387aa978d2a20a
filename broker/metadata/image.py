"""The cluster's metadata: topics, partitions, configuration, ACLs and producer id blocks, kept in `__cluster_metadata`.

The log, with the last snapshot before it (`broker.metadata.snapshots`), is the truth (records of KIP-631, in Kafka's
framing); this class is its image in memory. A change is one batch, appended and fsynced before the image changes and
before any client is answered, so a crash leaves it done or not done. Directories follow the log: the next start creates
those that the disk lacks, and deletes those that the log has removed.

A change takes effect in one way: the image notifies its listeners of the old and the new state. A start is the same:
the log is replayed, and then the listeners are notified of everything in the image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from barnabas.broker.clock import Clock
from barnabas.broker.metadata.credentials import ScramCredentials
from barnabas.broker.metadata.records import decode_snapshot, frame, unframe
from barnabas.broker.metadata.tokens import DelegationTokens
from barnabas.broker.security.acls import Acls
from barnabas.broker.settings.quotas import ClientQuotas
from barnabas.storage.errors import StorageError
from barnabas.storage.snapshots import SnapshotId, Snapshots
from barnabas.storage.vnode import Origin, Vnode
from barnabas.wire.aliases import BytesLike
from barnabas.wire.batch import Record, build_batch, check, iter_batches, iter_records
from barnabas.wire.errors import KafkaError
from barnabas.wire.internal_topics import INTERNAL_TOPICS
from barnabas.wire.records.cluster_metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import ZERO_UUID, Message, replace

METADATA_TOPIC = "__cluster_metadata"
#: The id that Kafka gives to the topic of the metadata, in every cluster.
METADATA_TOPIC_ID = ZERO_UUID[:-1] + b"\1"
RESOURCE_TOPIC, RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP = 2, 4, 8, 16, 32
PRODUCER_ID_BLOCK = 1000
_MOST_REPAIRS = 1000
_SAME_LEADER = -2
#: Called with an event and its fields.
Tell = Callable[..., None]


class Leader(NamedTuple):
    """The leader of a partition: the id of a node (-1: none), and how many leaders there were before."""

    node: int
    epoch: int


class Move(NamedTuple):
    """A partition without a leader, because it moves from one node to another."""

    source: int
    target: int


class NodeImage(NamedTuple):
    """Another node: (host, port) of each of its listeners by name, and the record that it is registered with."""

    addresses: dict[str, tuple[str, int]]
    rack: str | None
    record: RegisterBrokerRecord


@dataclass(slots=True)
class TopicImage:
    """A topic, the leaders of its partitions by their index, and its settings."""

    name: str
    topic_id: bytes
    partitions: dict[int, Leader] = field(default_factory=dict)
    configs: dict[str, str] = field(default_factory=dict)

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def copy(self) -> TopicImage:
        return TopicImage(self.name, self.topic_id, dict(self.partitions), dict(self.configs))


def metric_name(topic: str) -> str:
    """A topic's name in Kafka's metrics, in which two topics must not be the same."""
    return topic.replace(".", "_")


class Listener:
    """Is notified of each change once the image has it, and of everything at a start. Its methods do not wait.

    The calls for one change come in this order. A listener overrides the methods that it needs.
    """

    def settings_changed(self) -> None:
        """The settings of this broker or of all brokers have changed."""

    def topic_changed(self, before: TopicImage | None, after: TopicImage | None) -> None:
        """A topic is new (`before` is None), gone (`after` is None), or has other settings, partitions or leaders."""

    def change_applied(self) -> None:
        """All notifications of the change are done."""


class MetadataImage:
    """The image. Changes are written first, and applied when they are durable."""

    def __init__(self, node_id: int, clock: Clock) -> None:
        self.node_id = node_id
        self._clock = clock
        self._vnode: Vnode | None = None
        #: Notified of each change, in this order.
        self.listeners: list[Listener] = []
        #: In force at once: the authorizer asks them each time.
        self.acls = Acls()
        self._clear()

    def _clear(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        #: How many partitions each node leads.
        self.led: Counter[int] = Counter()
        #: Topic names by their name in metrics, where a dot and an underscore are the same.
        self.metric_names: dict[str, set[str]] = {}
        self.by_id: dict[bytes, TopicImage] = {}
        #: Partitions that move from one node to another, by topic id and index.
        self.moves: dict[tuple[bytes, int], Move] = {}
        self.removed_ids: set[bytes] = set()
        #: An offset of the metadata log at or after the last removal of a topic.
        self.last_removal = 0
        #: When a topic of that name was last removed, in ms. Older data without a topic id belonged to that topic.
        self.removed_ms: dict[str, int] = {}
        #: The registered nodes, by their ids.
        self.nodes: dict[int, NodeImage] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}  # "" holds the cluster-wide defaults
        #: The metrics that clients are to push, by the name of the resource (KIP-714).
        self.client_metrics: dict[str, dict[str, str]] = {}
        self.quotas = ClientQuotas()
        self.acls.clear()
        self.credentials = ScramCredentials()
        self.tokens = DelegationTokens()
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        #: Bytes of the log after the last snapshot.
        self.bytes_since_snapshot = 0
        #: The time of the newest record, in ms.
        self.newest_ms = 0

    @property
    def has_log(self) -> bool:
        """Whether the metadata log is here; nodes other than its owner have only the image."""
        return self._vnode is not None

    @property
    def log(self) -> Vnode:
        """The metadata log."""
        assert self._vnode is not None, "the metadata log is not loaded"
        return self._vnode

    def load(self, vnode: Vnode, snapshots: Snapshots | None = None, tell: Tell | None = None) -> None:
        """Go through `replay`, then `tell_all`."""
        for _ in chain(self.replay(vnode, snapshots, tell), self.tell_all()):
            pass

    def replay(self, vnode: Vnode, snapshots: Snapshots | None = None, tell: Tell | None = None) -> Iterator[None]:
        """Read the newest whole snapshot, and replay the log from there on. Listeners are not notified yet.

        It yields after each record, so that the caller can let other tasks run. Raises StorageError if it cannot be
        read or understood.
        """
        self._vnode = vnode
        try:
            yield from self._replay_mending(vnode, snapshots, tell)
        except (KafkaError, ProtocolError, KeyError) as error:
            raise StorageError(f"the metadata log in {vnode.place} is damaged: {error}") from error

    def tell_all(self) -> Iterator[None]:
        """Notify the listeners of everything in the image. It yields after each topic, like `replay`."""
        self._tell_settings()
        for topic_id in list(self.by_id):
            topic = self.by_id.get(topic_id)
            if topic is not None:  # else it was removed meanwhile
                self._tell_topic(None, topic)
            yield
        self._tell_applied()

    def _replay_mending(self, vnode: Vnode, snapshots: Snapshots | None, tell: Tell | None) -> Iterator[None]:
        """Apply snapshot and log. A damaged batch is set aside at once, as nothing can be served before."""
        with vnode.mending_on_the_spot():
            for _ in range(_MOST_REPAIRS):
                self._clear()
                begin = 0
                if snapshots is not None:
                    begin = yield from self._read_snapshot(vnode, snapshots, tell)
                try:
                    yield from self._replay(vnode, max(begin, vnode.log_start_offset))
                    return
                except StorageError:
                    if vnode.error is not None:
                        raise
        raise StorageError("it cannot be repaired")

    def begin_with(self, records: Iterable[Message]) -> Iterator[None]:
        """Forget all, and apply the records of a snapshot. Listeners are not notified. It yields as `replay` does."""
        self._clear()
        for record in records:
            self.apply(record)
            yield

    def _read_snapshot(self, vnode: Vnode, snapshots: Snapshots, tell: Tell | None) -> Generator[None, None, int]:
        """Apply the newest whole snapshot; gives the offset where the log continues. Raises StorageError."""
        snapshot, records = _newest(snapshots, tell)
        if snapshot is not None:
            if not vnode.log_start_offset <= snapshot.offset <= vnode.log_end_offset:
                raise StorageError(
                    f"the metadata log in {vnode.place} has offsets {vnode.log_start_offset} to "
                    f"{vnode.log_end_offset}, and does not continue where {snapshot.name} ends"
                )
            yield from self.begin_with(records)
            return snapshot.offset
        if vnode.log_start_offset:
            raise StorageError(f"no snapshot in {vnode.place} says what was before offset {vnode.log_start_offset}")
        return 0

    def _replay(self, vnode: Vnode, offset: int) -> Iterator[None]:
        while offset < vnode.log_end_offset:
            data = vnode.read(offset, 1 << 20, max_offset=vnode.log_end_offset).slice
            if data is None:
                break
            for header, batch in iter_batches(data.read()):
                self.bytes_since_snapshot += len(batch)
                self.newest_ms = max(self.newest_ms, header.max_timestamp)
                try:
                    check(batch)
                except KafkaError as error:
                    raise vnode.found_damage(header.base_offset, error) from error
                if not header.is_control:
                    for change, timestamp in changes_of(batch):
                        self.apply(change, timestamp)
                        yield
                offset = header.last_offset + 1

    def batch_of(self, records: Sequence[Message]) -> bytes:
        """The batch of a change. For many partitions this takes long: a thread may make it."""
        now = self._clock.wall_ms()
        return build_batch([Record(None, frame(record), now) for record in records])

    def write(self, batch: bytes) -> int:
        """Write a change; gives the offset that must be durable before it is applied.

        Raises KafkaError if the log cannot be written; then nothing has changed.
        """
        now = self._clock.wall_ms()
        self.bytes_since_snapshot += len(batch)
        self.newest_ms = now
        result = self.log.append(batch, now_ms=now, origin=Origin.COORDINATOR)
        return result.last_offset + 1

    def change(self, records: Sequence[Message], timestamp: int | None = None) -> None:
        """Apply a durable change, and notify the listeners. It was written at `timestamp` (now, if None)."""
        before: dict[bytes, TopicImage | None] = {}
        settings = False
        for record in records:
            if isinstance(record, PartitionRecord) and record.topic_id in before:  # there can be many
                self.apply(record, timestamp)
                continue
            for topic_id in self._touched(record):
                if topic_id not in before:
                    known = self.by_id.get(topic_id)
                    before[topic_id] = known and known.copy()
            settings = settings or (isinstance(record, ConfigRecord) and record.resource_type == RESOURCE_BROKER)
            self.apply(record, timestamp)
        if settings:
            self._tell_settings()
        for topic_id, was in before.items():
            after = self.by_id.get(topic_id)
            if was is not None or after is not None:
                self._tell_topic(was, after)
        self._tell_applied()

    def _tell_settings(self) -> None:
        for listener in self.listeners:
            listener.settings_changed()

    def _tell_topic(self, before: TopicImage | None, after: TopicImage | None) -> None:
        for listener in self.listeners:
            listener.topic_changed(before, after)

    def _tell_applied(self) -> None:
        for listener in self.listeners:
            listener.change_applied()

    def _touched(self, record: Message) -> Iterator[bytes]:
        """The ids of the topics that a record changes."""
        named = None
        if isinstance(record, TopicRecord):
            named = record.name
        elif isinstance(record, ConfigRecord) and record.resource_type == RESOURCE_TOPIC:
            named = record.resource_name
        if named in self.topics:
            yield self.topics[named].topic_id
        if isinstance(record, TopicRecord | PartitionRecord | PartitionChangeRecord | RemoveTopicRecord):
            yield record.topic_id

    def apply(self, record: Message, timestamp: int | None = None) -> None:
        """Change the image by one record, written at `timestamp` (now, if None). Does not notify listeners."""
        if isinstance(record, TopicRecord):
            before = self.topics.get(record.name)
            if before is not None:  # its creation could be neither finished nor undone
                self.apply(RemoveTopicRecord(topic_id=before.topic_id), timestamp)
            topic = TopicImage(record.name, record.topic_id)
            self.topics[record.name] = self.by_id[record.topic_id] = topic
            self.metric_names.setdefault(metric_name(record.name), set()).add(record.name)
        elif isinstance(record, PartitionRecord):
            leader = Leader(record.leader, record.leader_epoch)
            self._set_leader(self.by_id[record.topic_id], record.partition_id, leader)
            self._set_move(record)
        elif isinstance(record, PartitionChangeRecord):
            if record.leader != _SAME_LEADER:  # a new epoch begins, also with the same leader or without one
                topic = self.by_id[record.topic_id]
                epoch = topic.partitions[record.partition_id].epoch + 1
                self._set_leader(topic, record.partition_id, Leader(record.leader, epoch))
                self._set_move(record)
        elif isinstance(record, RemoveTopicRecord):
            gone = self.by_id.pop(record.topic_id, None)
            self.removed_ids.add(record.topic_id)
            if self._vnode is not None:
                self.last_removal = self._vnode.log_end_offset
            if gone is not None:
                for index in gone.partitions if self.moves else ():
                    self.moves.pop((gone.topic_id, index), None)
                self.led.subtract(leader.node for leader in gone.partitions.values())
            if gone is not None and self.topics.get(gone.name) is gone:
                del self.topics[gone.name]
                self._forget_metric_name(gone.name)
                self.removed_ms[gone.name] = self._clock.wall_ms() if timestamp is None else timestamp
        elif isinstance(record, ProducerIdsRecord):
            self.next_producer_id = record.next_producer_id
        elif isinstance(record, ClientQuotaRecord):
            self.quotas.apply(record)
        elif isinstance(record, AccessControlEntryRecord | RemoveAccessControlEntryRecord):
            self.acls.apply(record)
        elif isinstance(record, UserScramCredentialRecord | RemoveUserScramCredentialRecord):
            self.credentials.apply(record)
        elif isinstance(record, DelegationTokenRecord | RemoveDelegationTokenRecord):
            self.tokens.apply(record)
        elif isinstance(record, RegisterBrokerRecord):
            addresses = {each.name: (each.host, each.port) for each in record.end_points}
            self.nodes[record.broker_id] = NodeImage(addresses, record.rack, record)
        elif isinstance(record, UnregisterBrokerRecord):
            self.nodes.pop(record.broker_id, None)
        elif isinstance(record, FeatureLevelRecord):
            self.features[record.name] = record.feature_level
        elif isinstance(record, ConfigRecord):
            self._apply_config(record)

    def _set_leader(self, topic: TopicImage, index: int, leader: Leader) -> None:
        before = topic.partitions.get(index)
        if before is not None:
            self.led[before.node] -= 1
        self.led[leader.node] += 1
        topic.partitions[index] = leader

    def _set_move(self, record: PartitionRecord | PartitionChangeRecord) -> None:
        where = record.topic_id, record.partition_id
        if record.adding_replicas and record.removing_replicas:
            self.moves[where] = Move(record.removing_replicas[0], record.adding_replicas[0])
        else:
            self.moves.pop(where, None)

    def _forget_metric_name(self, name: str) -> None:
        alike = self.metric_names[metric_name(name)]
        alike.discard(name)
        if not alike:
            del self.metric_names[metric_name(name)]

    def _apply_config(self, record: ConfigRecord) -> None:
        if record.resource_type == RESOURCE_TOPIC:
            topic = self.topics.get(record.resource_name)
            if topic is None:
                return
            configs = topic.configs
        elif record.resource_type == RESOURCE_BROKER:
            configs = self.broker_configs.setdefault(record.resource_name, {})
        elif record.resource_type == RESOURCE_CLIENT_METRICS:
            configs = self.client_metrics.setdefault(record.resource_name, {})
        else:
            return
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        if not configs and record.resource_type == RESOURCE_CLIENT_METRICS:
            del self.client_metrics[record.resource_name]

    def records(self) -> Iterator[Message]:
        """The whole image as records, for a snapshot. The features come first: they say how to read the rest."""
        for name, level in self.features.items():
            yield FeatureLevelRecord(name=name, feature_level=level)
        for node in self.nodes.values():
            yield node.record
        yield ProducerIdsRecord(broker_id=self.node_id, broker_epoch=0, next_producer_id=self.next_producer_id)
        for resource, configs in self.broker_configs.items():
            for key, value in configs.items():
                yield self.config_record(RESOURCE_BROKER, resource, key, value)
        for resource, configs in self.client_metrics.items():
            for key, value in configs.items():
                yield self.config_record(RESOURCE_CLIENT_METRICS, resource, key, value)
        yield from self.quotas.records()
        yield from self.acls.records()
        yield from self.credentials.records()
        yield from self.tokens.records()
        for topic in self.topics.values():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for index, leader in topic.partitions.items():
                record = self._partition_record(topic.topic_id, index, leader)
                move = self.moves.get((topic.topic_id, index))
                if move is not None:
                    record = replace(
                        record, replicas=[*move], adding_replicas=[move.target], removing_replicas=[move.source]
                    )
                yield record
            for key, value in topic.configs.items():
                yield self.config_record(RESOURCE_TOPIC, topic.name, key, value)

    def snapshot_taken(self) -> None:
        """All of the image is in a snapshot, and nothing is left of removed topics."""
        self.bytes_since_snapshot = 0
        self.removed_ids.clear()
        self.removed_ms.clear()

    def topic_records(self, topic: TopicImage) -> list[Message]:
        """The change that creates a topic."""
        return [
            TopicRecord(name=topic.name, topic_id=topic.topic_id),
            *self.partition_records(topic.topic_id, topic.partitions),
            *(self.config_record(RESOURCE_TOPIC, topic.name, key, value) for key, value in topic.configs.items()),
        ]

    def partition_records(self, topic_id: bytes, partitions: Mapping[int, Leader]) -> Iterator[Message]:
        """The change that adds partitions, each with its leader."""
        for index, leader in partitions.items():
            yield self._partition_record(topic_id, index, leader)

    @staticmethod
    def _partition_record(topic_id: bytes, index: int, leader: Leader) -> PartitionRecord:
        """The record of a partition; the leader has the only replica."""
        return PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=[leader.node],
            isr=[leader.node],
            leader=leader.node,
            leader_epoch=leader.epoch,
            partition_epoch=0,
        )

    @staticmethod
    def config_record(kind: int, resource: str, name: str, value: str | None) -> ConfigRecord:
        """The change of one configuration key; None removes it."""
        return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)

    def producer_id_block(self) -> tuple[int, int, list[Any]]:
        """(first id, number of ids, the change that reserves them). The caller holds the lock of all changes."""
        first = self.next_producer_id
        following = first + PRODUCER_ID_BLOCK
        return (
            first,
            PRODUCER_ID_BLOCK,
            [ProducerIdsRecord(broker_id=self.node_id, broker_epoch=0, next_producer_id=following)],
        )


def changes_of(batch: BytesLike) -> Iterator[tuple[Message, int]]:
    """The known records in a batch of the metadata log, each with its time."""
    for record in iter_records(batch):
        change = unframe(record.value) if record.value is not None else None
        if change is not None:
            yield change, record.timestamp


def _newest(snapshots: Snapshots, tell: Tell | None) -> tuple[SnapshotId | None, Iterable[Message]]:
    """The newest whole snapshot, and its records."""
    for snapshot in snapshots.ids():
        try:
            return snapshot, decode_snapshot(snapshots.read(snapshot))
        except (OSError, KafkaError, ProtocolError) as error:
            if tell is not None:
                tell("metadata.snapshot.damaged", file=snapshot.name, reason=error)
    return None, ()
