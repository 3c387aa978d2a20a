"""The format of metadata records in the log and in snapshots (KIP-631, KIP-630), as in Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.wire import batch
from barnabas.wire.batch import ControlType, Record
from barnabas.wire.codegen import message_codec
from barnabas.wire.errors import ErrorCode, KafkaError
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
from barnabas.wire.records.control import SnapshotFooterRecord, SnapshotHeaderRecord
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Message
from barnabas.wire.varint import more, uvarint

_FRAME_VERSION = 1
_RECORDS_IN_A_BATCH = 500

_CLASSES: dict[int, type[Message]] = {
    cls.__wire__.key: cls
    for cls in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        FeatureLevelRecord,
        TopicRecord,
        PartitionRecord,
        PartitionChangeRecord,
        ConfigRecord,
        RemoveTopicRecord,
        ProducerIdsRecord,
        ClientQuotaRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        UserScramCredentialRecord,
        RemoveUserScramCredentialRecord,
        DelegationTokenRecord,
        RemoveDelegationTokenRecord,
    )
}


def frame(record: Message, version: int = 0) -> bytes:
    """A metadata record's value: frame version, record type, record version, body (KIP-631)."""
    head = uvarint(_FRAME_VERSION) + uvarint(record.__wire__.key) + uvarint(version)
    return head + message_codec(type(record), version).build(record)


class Framed(NamedTuple):
    """The head of a value: type and version of the record, and where the body begins."""

    key: int
    version: int
    position: int


def head_of(value: bytes) -> Framed:
    """Decode the head of a value. Raises ProtocolError if the value is damaged."""
    pos, head = 0, []
    try:
        for _ in range(3):
            number, pos = value[pos], pos + 1
            if number > 127:
                number, pos = more(value, pos, number)
            head.append(number)
    except IndexError:
        raise ProtocolError("metadata record shorter than its frame") from None
    if head[0] != _FRAME_VERSION:
        raise ProtocolError(f"metadata frame version {head[0]}")
    return Framed(head[1], head[2], pos)


def unframe(value: bytes | memoryview, classes: Mapping[int, type[Message]] = _CLASSES) -> Message | None:
    """The record in a value; None for types that are not in `classes`, which are those used here.

    Raises ProtocolError if it is damaged.
    """
    data = bytes(value)
    head = head_of(data)
    cls = classes.get(head.key)
    return None if cls is None else message_codec(cls, head.version).decode(data, head.position)[0]


def encode_snapshot(records: Iterable[Message], epoch: int, timestamp: int) -> Iterator[bytes]:
    """The batches of a snapshot: header, records, footer. `timestamp` is that of the newest record it covers."""
    head = message_codec(SnapshotHeaderRecord, 0).build(SnapshotHeaderRecord(0, timestamp))
    yield _control(0, ControlType.SNAPSHOT_HEADER, head, epoch, timestamp)
    offset = 1
    gathered: list[Record] = []

    def taken() -> bytes:
        nonlocal offset, gathered
        data = batch.build_batch(gathered, leader_epoch=epoch)
        data = batch.PREFIX.pack(offset, len(data) - batch.LOG_OVERHEAD, epoch) + data[batch.PREFIX_SIZE :]
        offset += len(gathered)
        gathered = []
        return data

    for record in records:
        gathered.append(Record(None, frame(record), timestamp))
        if len(gathered) == _RECORDS_IN_A_BATCH:
            yield taken()
    if gathered:
        yield taken()
    foot = message_codec(SnapshotFooterRecord, 0).build(SnapshotFooterRecord(0))
    yield _control(offset, ControlType.SNAPSHOT_FOOTER, foot, epoch, timestamp)


def _control(offset: int, kind: int, value: bytes, epoch: int, timestamp: int) -> bytes:
    record = Record(batch.control_key(kind), value, timestamp, offset=offset)
    return batch.build_batch([record], base_offset=offset, leader_epoch=epoch, is_control=True)


def decode_snapshot(data: bytes) -> list[Message]:
    """The records of a snapshot. Raises KafkaError, ProtocolError if it is damaged or incomplete."""
    found = []
    for is_control, record in snapshot_records(data):
        if not is_control and record.value is not None and (change := unframe(record.value)) is not None:
            found.append(change)
    return found


def snapshot_records(data: bytes) -> list[tuple[bool, Record]]:
    """All records of a snapshot, each with whether it is a control record.

    Raises KafkaError, ProtocolError if it is damaged or incomplete.
    """
    found: list[tuple[bool, Record]] = []
    kinds: list[int] = []
    end = 0
    for header, view in batch.iter_batches(data):
        batch.check(view)
        end += header.size_in_bytes
        for record in batch.iter_records(view):
            found.append((header.is_control, record))
            if header.is_control:
                kinds.append(batch.control_type(record.key))
    whole = kinds and kinds[0] == ControlType.SNAPSHOT_HEADER and kinds[-1] == ControlType.SNAPSHOT_FOOTER
    if end != len(data) or not whole:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the snapshot is cut off")
    return found
