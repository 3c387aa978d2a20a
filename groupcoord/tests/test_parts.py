"""The small parts: partitions of groups, replies in turns, the state read from a log."""

from __future__ import annotations

import pytest

from barnabas.groupcoord.log.image import PartitionImage
from barnabas.groupcoord.log.records import CoordinatorRecord, group_record, offset_record
from barnabas.groupcoord.outbox import Outbox
from barnabas.groupcoord.partitions import group_partition, java_string_hash
from barnabas.wire.codegen import message_codec
from barnabas.wire.records.group_metadata import GroupMetadataValue
from barnabas.wire.records.offset_commit import OffsetCommitValue


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_java_string_hash(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_the_partition_of_a_group_is_never_negative() -> None:
    assert group_partition("polygenelubricants", 50) == 0
    assert group_partition("hello", 50) == 22
    assert all(0 <= group_partition(f"group-{number}", 50) < 50 for number in range(1_000))


def test_replies_leave_when_the_outermost_turn_ends() -> None:
    outbox = Outbox()
    seen: list[str] = []

    def fails(response: str) -> None:
        raise RuntimeError(response)

    with outbox:
        outbox.put(fails, "a")
        with outbox:
            outbox.put(seen.append, "b")
        assert not seen
    assert seen == ["b"]


def apply(image: PartitionImage, record: CoordinatorRecord, producer_id: int = -1) -> None:
    image.apply(record.key, record.value, producer_id)


def test_the_last_record_counts_and_tombstones_delete() -> None:
    image = PartitionImage()
    apply(image, offset_record("g", "t", 0, OffsetCommitValue(offset=1)))
    apply(image, offset_record("g", "t", 0, OffsetCommitValue(offset=2)))
    apply(image, offset_record("g", "t", 1, OffsetCommitValue(offset=3)))
    apply(image, offset_record("g", "t", 1, None))
    apply(image, group_record("g", GroupMetadataValue(generation=4)))
    apply(image, group_record("h", GroupMetadataValue()))
    apply(image, group_record("h", None))
    image.apply(b"\0\3\0\1g", b"\0\0")  # an unknown kind of record
    assert {where: value.offset for where, value in image.offsets.items()} == {("g", "t", 0): 2}
    assert {name: value.generation for name, value in image.groups.items()} == {"g": 4}


def test_offsets_of_transactions_count_when_committed() -> None:
    image = PartitionImage()
    apply(image, offset_record("g", "t", 0, OffsetCommitValue(offset=1)), 7)
    apply(image, offset_record("g", "t", 1, OffsetCommitValue(offset=1)), 8)
    apply(image, offset_record("g", "t", 2, OffsetCommitValue(offset=1)), 9)
    image.end_transaction(7, committed=True)
    image.end_transaction(8, committed=False)
    assert list(image.offsets) == [("g", "t", 0)]
    assert list(image.open_transactions.places()) == [("g", "t", 2)]


@pytest.mark.parametrize("version", range(5))
def test_offsets_written_by_older_brokers_are_read(version: int) -> None:
    key = offset_record("g", "t", 0, None).key
    value = version.to_bytes(2, "big") + message_codec(OffsetCommitValue, version).build(OffsetCommitValue(offset=5))
    image = PartitionImage()
    image.apply(key, value)
    image.apply(b"\0\0" + key[2:], value)  # the first kind of offset key
    assert image.offsets["g", "t", 0].offset == 5
