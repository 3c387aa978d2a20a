"""The metadata of an Apache Kafka cluster with one node, from its snapshot and the log after it (KIP-631, KIP-630).

The records that barnabas uses become a `MetadataImage`. Other records are counted by name, so that an operator learns
of them. A record of an unknown type or version stops the reading, or is reported: nothing is dropped silently.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from barnabas.broker.clock import Clock
from barnabas.broker.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    MetadataImage,
)
from barnabas.broker.metadata.records import head_of, snapshot_records, unframe
from barnabas.storage.errors import StorageError
from barnabas.storage.kafka_dir import KafkaDir
from barnabas.wire import KAFKA_VERSION
from barnabas.wire.batch import ControlType, Record, control_type, iter_records
from barnabas.wire.codegen import message_codec
from barnabas.wire.errors import KafkaError
from barnabas.wire.records.cluster_metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from barnabas.wire.records.control import VotersRecord
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Message

_REGISTER_BROKER, _UNREGISTER_BROKER, _REGISTER_CONTROLLER = 0, 1, 27
_BEGIN, _END, _ABORT = 23, 24, 25
_CLASSES: dict[int, type[Message]] = {
    cls.__wire__.key: cls
    for cls in (
        *(TopicRecord, RemoveTopicRecord, PartitionRecord, PartitionChangeRecord, ConfigRecord, ClientQuotaRecord),
        *(ProducerIdsRecord, FeatureLevelRecord, AccessControlEntryRecord, RemoveAccessControlEntryRecord),
        *(UserScramCredentialRecord, RemoveUserScramCredentialRecord),
        *(DelegationTokenRecord, RemoveDelegationTokenRecord),
    )
}
#: Records about the life cycle of Kafka's nodes. barnabas has no such nodes, so nothing is lost without these records.
_OF_NODES = {
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    17: "BrokerRegistrationChangeRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    28: "ClearElrRecord",
}
_RESOURCES = {RESOURCE_CLIENT_METRICS: "client metrics", RESOURCE_GROUP: "group"}

#: A partition by topic id and number.
PartitionId = tuple[bytes, int]


@dataclass
class KafkaMetadata:
    """The content of the metadata."""

    image: MetadataImage
    brokers: set[int] = field(default_factory=set)
    controllers: set[int] = field(default_factory=set)
    voters: set[int] = field(default_factory=set)
    replicas: dict[PartitionId, list[int]] = field(default_factory=dict)
    directories: dict[PartitionId, list[bytes]] = field(default_factory=dict)
    #: The number of records that are not taken over, by their kind.
    left: Counter[str] = field(default_factory=Counter)
    #: The damaged snapshots.
    damaged: list[str] = field(default_factory=list)


def read_metadata(directory: KafkaDir) -> KafkaMetadata:
    """Read all metadata, up to the end of the log. Raises StorageError."""
    found = KafkaMetadata(MetadataImage(directory.node_id, Clock()), voters=directory.voters())
    reader = _Reader(found)
    try:
        begin = _read_snapshot(directory, reader)
        for header, view in directory.metadata_log(begin):
            for record in iter_records(view):
                reader.take(header.is_control, record)
    except (KafkaError, ProtocolError, KeyError) as error:
        raise StorageError(
            f"the metadata of {directory.path} cannot be read: {error}. It is of a newer Kafka than {KAFKA_VERSION}, "
            "or damaged"
        ) from error
    return found


def _read_snapshot(directory: KafkaDir, reader: _Reader) -> int:
    """Apply the newest undamaged snapshot. Returns the offset at which the log continues after it."""
    for snapshot in directory.snapshots.ids():
        try:
            records = snapshot_records(directory.snapshots.read(snapshot))
        except (OSError, KafkaError, ProtocolError) as error:
            reader.found.damaged.append(f"{snapshot.name}: {error}")
            continue
        for is_control, record in records:
            reader.take(is_control, record)
        return snapshot.offset
    return 0


class _Reader:
    """Applies records in order. Those of a metadata transaction (KIP-868) are applied at its end."""

    def __init__(self, found: KafkaMetadata) -> None:
        self.found = found
        self._waiting: list[bytes] | None = None

    def take(self, is_control: bool, record: Record) -> None:
        """Take the next record. Raises ProtocolError, KafkaError."""
        value = record.value
        if is_control:
            if control_type(record.key) == ControlType.KRAFT_VOTERS and value is not None:
                voters = message_codec(VotersRecord, 0).decode(bytes(value))[0].voters
                self.found.voters = {each.voter_id for each in voters}
            return
        if value is None:
            return
        value = bytes(value)
        key = head_of(value).key
        if key == _BEGIN:
            self._waiting = []
        elif key in (_END, _ABORT):
            ended, self._waiting = self._waiting or [], None
            for each in ended if key == _END else ():
                self._apply(each)
        elif self._waiting is not None:
            self._waiting.append(value)
        else:
            self._apply(value)

    def _apply(self, value: bytes) -> None:
        found = self.found
        record = unframe(value, _CLASSES)
        if record is None:
            self._pass_over(value)
        else:
            if isinstance(record, PartitionRecord | PartitionChangeRecord):
                where = record.topic_id, record.partition_id
                if record.replicas is not None:
                    found.replicas[where] = record.replicas
                if record.directories is not None:
                    found.directories[where] = record.directories
            elif isinstance(record, ConfigRecord) and record.resource_type not in (RESOURCE_TOPIC, RESOURCE_BROKER):
                kind = _RESOURCES.get(record.resource_type, f"resource type {record.resource_type}")
                found.left[f"settings of {kind} {record.resource_name}"] += 1
            found.image.apply(record, 0)

    def _pass_over(self, value: bytes) -> None:
        """Handle a record that is not decoded. Of a registration, only the node's id is used."""
        found, head = self.found, head_of(value)
        node = int.from_bytes(value[head.position : head.position + 4], "big")
        if head.key == _REGISTER_BROKER:
            found.brokers.add(node)
        elif head.key == _UNREGISTER_BROKER:
            found.brokers.discard(node)
        elif head.key == _REGISTER_CONTROLLER:
            found.controllers.add(node)
        elif head.key not in _OF_NODES:
            found.left[f"records of the unknown type {head.key}"] += 1
