"""The records of `__consumer_offsets`: Kafka's schemas, so that its tools print them and its brokers read them.

Key and value each begin with a 16-bit number. In a key it is the kind (0 and 1: offset, 2: group); in a value it is the
version of the schema. A null value deletes what earlier records with the key said. Unknown kinds (those of the newer
group protocols) are skipped.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.wire.codegen import message_codec
from barnabas.wire.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from barnabas.wire.records.offset_commit import OffsetCommitKey, OffsetCommitValue

_OFFSET_KINDS = (0, 1)
_OFFSET_KIND = 1
_GROUP_KIND = 2
_GROUP_VERSION = 3  # as in Kafka: the last inflexible version, as no tagged field needs more
_OFFSET_VERSION = 4  # the version with topic ids
_EXPIRING_OFFSET_VERSION = 1  # the only version with an expire timestamp, for commits with their own retention


class CoordinatorRecord(NamedTuple):
    """One record to append; a null value deletes."""

    key: bytes
    value: bytes | None


class OffsetEntry(NamedTuple):
    key: OffsetCommitKey
    value: OffsetCommitValue | None


class GroupEntry(NamedTuple):
    key: GroupMetadataKey
    value: GroupMetadataValue | None


def offset_record(group: str, topic: str, partition: int, value: OffsetCommitValue | None) -> CoordinatorRecord:
    """The record of a commit; without a value, the one that deletes it."""
    key = message_codec(OffsetCommitKey, 0).build(OffsetCommitKey(group=group, topic=topic, partition=partition))
    return CoordinatorRecord(_prefixed(_OFFSET_KIND, key), None if value is None else _offset_value(value))


def group_record(group: str, value: GroupMetadataValue | None) -> CoordinatorRecord:
    """The record of a group's generation; without a value, the one that deletes the group."""
    key = message_codec(GroupMetadataKey, 0).build(GroupMetadataKey(group=group))
    body = (
        None
        if value is None
        else _prefixed(_GROUP_VERSION, message_codec(GroupMetadataValue, _GROUP_VERSION).build(value))
    )
    return CoordinatorRecord(_prefixed(_GROUP_KIND, key), body)


def parse_record(key: bytes, value: bytes | None) -> OffsetEntry | GroupEntry | None:
    """The content of a record; None for unknown kinds. Raises ProtocolError for damaged records."""
    kind = _number(key)
    if kind in _OFFSET_KINDS:
        offset_key = message_codec(OffsetCommitKey, 0).decode(key, 2)[0]
        if value is None:
            return OffsetEntry(offset_key, None)
        return OffsetEntry(offset_key, message_codec(OffsetCommitValue, _number(value)).decode(value, 2)[0])
    if kind == _GROUP_KIND:
        group_key = message_codec(GroupMetadataKey, 0).decode(key, 2)[0]
        if value is None:
            return GroupEntry(group_key, None)
        return GroupEntry(group_key, message_codec(GroupMetadataValue, _number(value)).decode(value, 2)[0])
    return None


def _offset_value(value: OffsetCommitValue) -> bytes:
    version = _OFFSET_VERSION if value.expire_timestamp < 0 else _EXPIRING_OFFSET_VERSION
    return _prefixed(version, message_codec(OffsetCommitValue, version).build(value))


def _prefixed(number: int, body: bytes) -> bytes:
    return number.to_bytes(2, "big", signed=True) + body


def _number(data: bytes) -> int:
    return int.from_bytes(data[:2], "big", signed=True)
