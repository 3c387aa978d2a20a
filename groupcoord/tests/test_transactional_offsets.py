"""Offsets written in a transaction: they count from its end marker on, whatever happens meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.groupcoord.log.image import NO_PRODUCER, PartitionImage
from barnabas.groupcoord.log.records import offset_record
from barnabas.groupcoord.offsets.open_transactions import OpenTransactions
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
    """The reader may have passed the end of the log before the marker was written."""
    world = World()
    partition = world.coordinator.partition_of("g")
    loading, image = world.coordinator.begin_load(partition), PartitionImage()
    record = offset_record("g", "orders", 0, OffsetCommitValue(offset=5))
    image.apply(record.key, record.value, PRODUCER)
    end(world, True)
    world.coordinator.finish_load(loading, image)
    assert world.committed(stable=True)[("orders", 0)][0] == 5


def test_what_was_forgotten_does_not_come_back_with_the_marker() -> None:
    """As in the log, where the tombstone comes after the offset."""
    world = World()
    assert commit(world, 5) == ErrorCode.NONE
    world.coordinator.topic_deleted("orders")
    end(world, True)
    assert offset(world) is None


def test_of_two_offsets_the_later_one_in_the_log_counts() -> None:
    """Compaction keeps that one: after it, reading the log must give the same."""
    world = World()
    assert commit(world, 5) == ErrorCode.NONE
    assert world.commit_error(8) == ErrorCode.NONE
    assert offset(world) == 8
    end(world, True)
    assert offset(world) == 8
    assert world.committed(stable=True)[("orders", 0)][0] == 8


@given(st.lists(st.tuples(st.sampled_from("ptcf"), st.integers(1, 3)), max_size=30), st.integers(0, 4))
def test_a_compacted_log_says_the_same(steps: list[tuple[str, int]], skipped: int) -> None:
    """Plain commits and tombstones, offsets of three producers, and markers; compared with the compacted log.
    `skipped`: the number of steps at the end that are not cleaned yet.
    """
    log: list[tuple[bytes, bytes | None, int, bool | None]] = []
    for number, (kind, producer) in enumerate(steps):
        record = offset_record("g", "orders", 0, None if kind == "f" else OffsetCommitValue(offset=number))
        if kind == "c":
            log.append((b"", None, producer, number % 3 > 0))
        else:
            log.append((record.key, record.value, producer if kind == "t" else NO_PRODUCER, None))
    clean = len(log) - skipped
    for producer in (1, 2, 3):  # cleaning stops at the first open transaction
        written = [at for at, entry in enumerate(log) if entry[2] == producer]
        still_open = [at for at in written if not any(log[end][3] is not None for end in written if end > at)]
        clean = min([clean, *(at for at in still_open if log[at][3] is None)])

    def outcome(at: int) -> bool:
        if log[at][2] == NO_PRODUCER:
            return True
        return next(
            bool(log[end][3]) for end in range(at, len(log)) if log[end][2] == log[at][2] and log[end][3] is not None
        )

    records = [at for at in range(max(clean, 0)) if log[at][3] is None and outcome(at)]
    kept = {at for at, entry in enumerate(log) if at >= clean or entry[3] is not None} | set(records[-1:])
    images = []
    for wanted in (range(len(log)), sorted(kept)):
        image = PartitionImage()
        for at in wanted:
            key, value, producer, marker = log[at]
            if marker is None:
                image.apply(key, value, producer)
            else:
                image.end_transaction(producer, committed=marker)
        images.append((image.offsets, list(image.open_transactions.places())))
    assert images[0] == images[1]


def test_what_counts_at_a_place_is_found_without_asking_transactions_that_wrote_elsewhere() -> None:
    """Calls of our own code are counted: each commit asks those that have written for its partition, once."""
    value = OffsetCommitValue(offset=1, commit_timestamp=0)
    opened = OpenTransactions()
    for producer_id in range(500):
        opened.write(producer_id, ("g", "t", producer_id), value)
        opened.write(producer_id, ("g", "shared", 0), value)
    asked: list[int] = []

    class Asked(dict[int, Any]):
        def __getitem__(self, producer_id: int) -> Any:
            asked.append(producer_id)
            return super().__getitem__(producer_id)

        def values(self) -> Any:
            raise AssertionError("it walks all open transactions")

    opened._of = Asked(opened._of)
    assert opened.supersede(("g", "t", 17)) == 1
    assert opened.supersede(("g", "none", 0)) == 0
    assert asked == [17]
    assert [others for _, _, others in opened.end(499, committed=True)] == [0, 499]
    assert opened.supersede(("g", "shared", 0)) == 0
    assert len(asked) == 500


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
