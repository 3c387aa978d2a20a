"""Offsets that a transaction has written: they count when its marker says so, whatever happens meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.groupcoord.image import PartitionImage
from barnabas.groupcoord.records import offset_record
from barnabas.groupcoord.tests.harness import Reply, World
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas.wire.records.offset_commit import OffsetCommitValue

PRODUCER = 7


def commit(world: World, offset: int, *, version: int = 5, refusal: int = 0, **member: Any) -> ErrorCode:
    reply: Reply[TxnOffsetCommitResponse] = Reply()
    topics = [TxnOffsetCommitRequestTopic("orders", [TxnOffsetCommitRequestPartition(0, offset)])]
    request = TxnOffsetCommitRequest("t", "g", PRODUCER, 0, topics=topics, **member)
    world.coordinator.commit_in_transaction(request, version=version, refusal=ErrorCode(refusal), reply=reply)
    return ErrorCode(reply.get().topics[0].partitions[0].error_code)


def end(world: World, committed: bool) -> None:
    world.coordinator.end_transaction(world.coordinator.partition_of("g"), PRODUCER, committed=committed)


def offset(world: World) -> int | None:
    found = world.committed().get(("orders", 0))
    return None if found is None else found[0]


def test_the_last_offset_of_a_committed_transaction_counts() -> None:
    world = World()
    for committed, then in ((True, 2), (False, 2), (True, 6)):
        start = (offset(world) or 0) + 1
        assert commit(world, start) == commit(world, then if committed else 99) == ErrorCode.NONE
        end(world, committed)
        assert offset(world) == then
        assert world.describe().group_state == "Empty", "a group without members"


def test_a_marker_that_comes_while_its_partition_is_read_is_not_lost() -> None:
    """The reading may have passed the end of the log before the marker was there."""
    world = World()
    partition = world.coordinator.partition_of("g")
    loading, image = world.coordinator.begin_load(partition), PartitionImage()
    record = offset_record("g", "orders", 0, OffsetCommitValue(offset=5))
    image.apply(record.key, record.value, PRODUCER)
    end(world, True)
    world.coordinator.finish_load(loading, image)
    assert world.committed(stable=True)[("orders", 0)][0] == 5


def test_what_was_forgotten_does_not_come_back_with_the_marker() -> None:
    """As the log says, in which the tombstone comes after the offset."""
    world = World()
    assert commit(world, 5) == ErrorCode.NONE
    world.coordinator.topic_deleted("orders")
    end(world, True)
    assert offset(world) is None


def test_members_are_checked() -> None:
    world = World()
    (member,) = world.stable()
    generation = world.classic_groups["g"].generation
    assert commit(world, 1, member_id=member, generation_id=generation) == ErrorCode.NONE
    assert commit(world, 1, member_id=member, generation_id=generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert commit(world, 1, member_id="dead", generation_id=generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, 1) == ErrorCode.NONE, "up to version 2 a producer names no member"


@pytest.mark.parametrize(("version", "code"), [(1, 15), (2, 14)])
def test_loading_is_told_by_version(version: int, code: int) -> None:
    world = World()
    world.coordinator.begin_load(world.coordinator.partition_of("g"))
    assert commit(world, 1, version=version) == code


def test_what_the_transaction_coordinator_refuses_is_not_written() -> None:
    world = World()
    assert commit(world, 1, refusal=ErrorCode.INVALID_PRODUCER_EPOCH) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert not any(world.store.log.values())
