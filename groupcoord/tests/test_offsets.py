"""Committing, fetching, deleting and forgetting offsets."""

from __future__ import annotations

import pytest

from barnabas.groupcoord.config import GroupConfig
from barnabas.groupcoord.log.records import offset_record
from barnabas.groupcoord.tests.harness import ORDERS, PAYMENTS, START_MS, Reply, World
from barnabas.groupcoord.topics import Topic
from barnabas.wire.codegen import message_codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.messages.list_groups import ListGroupsRequest
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas.wire.records.offset_commit import OffsetCommitValue

WEEK = 7 * 24 * 3600.0
GONE = Topic("gone", b"g" * 16, 9)


def delete_groups(world: World, *names: str) -> dict[str, int]:
    reply: Reply[DeleteGroupsResponse] = Reply()
    world.coordinator.delete_groups(DeleteGroupsRequest(groups_names=list(names)), reply=reply)
    return {result.group_id: result.error_code for result in reply.get().results}


def delete_offsets(world: World, topic: str, *partitions: int, group: str = "g") -> OffsetDeleteResponse:
    reply: Reply[OffsetDeleteResponse] = Reply()
    asked = OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(each) for each in partitions])
    world.coordinator.delete_offsets(OffsetDeleteRequest(group_id=group, topics=[asked]), reply=reply)
    return reply.get()


def listed(world: World, states: list[str] | None = None, types: list[str] | None = None) -> dict[str, str]:
    request = ListGroupsRequest(states_filter=states or [], types_filter=types or [])
    return {each.group_id: each.group_state for each in world.coordinator.list_groups(request).groups}


def records(world: World) -> list[tuple[bytes, bytes | None]]:
    return [record for log in world.store.log.values() for record in log]


# --- commit and fetch -------------------------------------------------------------------------------------------------


def test_a_simple_consumer_commits_without_joining() -> None:
    world = World()
    assert world.commit_error(42, metadata="naïve \U0001f600", epoch=3) == ErrorCode.NONE
    assert world.committed() == {("orders", 0): (42, 3, "naïve \U0001f600")}
    assert listed(world) == {"g": "Empty"}
    world.start()
    assert world.committed() == {("orders", 0): (42, 3, "naïve \U0001f600")}
    assert listed(world) == {"g": "Empty"}


def test_a_commit_is_visible_when_it_is_durable() -> None:
    world = World()
    world.commit(1).get()
    world.store.hold()
    waiting = world.commit(2)
    assert waiting.is_open
    assert world.committed()["orders", 0][0] == 1
    world.store.release_all()
    assert waiting.get().topics[0].partitions[0].error_code == ErrorCode.NONE
    assert world.committed()["orders", 0][0] == 2


def test_a_commit_that_fails_is_never_seen() -> None:
    world = World()
    world.store.fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.commit_error(1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.committed() == {}
    assert listed(world) == {}


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"metadata": "x" * 4096}, ErrorCode.NONE),
        ({"metadata": "x" * 4097}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ({"metadata": None}, ErrorCode.NONE),
        ({"partition": 3}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": GONE}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": GONE, "version": 10}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"version": 10}, ErrorCode.NONE),
        ({"generation": 1, "version": 8}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 1, "version": 9}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_id": "stranger"}, ErrorCode.NONE),  # the group does not exist, so nobody can be a stranger to it
    ],
)
def test_commits_to_a_group_that_is_not_there(more: dict[str, object], error: ErrorCode) -> None:
    assert World().commit_error(1, **more) == error


@pytest.mark.parametrize(
    ("member", "generation", "instance", "error"),
    [
        ("c-1", 1, None, ErrorCode.NONE),
        ("c-1", 0, None, ErrorCode.ILLEGAL_GENERATION),
        ("c-1", 2, None, ErrorCode.ILLEGAL_GENERATION),
        ("c-1", -1, None, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("c-1", 1, "one", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits_to_a_stable_group(member: str, generation: int, instance: str | None, error: ErrorCode) -> None:
    world = World()
    world.stable()
    assert world.commit_error(1, member, generation, instance=instance) == error


def test_commits_while_the_group_rebalances() -> None:
    world = World()
    [member] = world.stable()
    world.new_member()
    assert world.commit_error(1, member, 1) == ErrorCode.NONE  # it still has what it was assigned
    world.join(member).get()
    assert world.commit_error(2, member, 2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_good_partitions_of_a_commit_are_kept_beside_bad_ones() -> None:
    world = World()
    reply: Reply[OffsetCommitResponse] = Reply()
    topics = [
        OffsetCommitRequestTopic(
            name="orders", partitions=[OffsetCommitRequestPartition(0, 5), OffsetCommitRequestPartition(7, 5)]
        ),
        OffsetCommitRequestTopic(name="gone", partitions=[OffsetCommitRequestPartition(0, 5)]),
    ]
    world.coordinator.commit(OffsetCommitRequest(group_id="g", topics=topics), version=9, reply=reply)
    answer = reply.get()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = [[each.error_code for each in topic.partitions] for topic in answer.topics]
    assert codes == [[0, unknown], [unknown]]
    assert list(world.committed()) == [("orders", 0)]
    for version in range(2, 11):
        message_codec(OffsetCommitResponse, version).build(answer)


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_of_offset_fetch(version: int) -> None:
    world = World()
    world.commit(5, metadata="m", epoch=2).get()
    if version < 8:
        asked = [OffsetFetchRequestTopic("orders", [0, 1]), OffsetFetchRequestTopic("gone", [0])]
        request = OffsetFetchRequest(group_id="g", topics=asked)
    else:
        wanted = [
            OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=indexes)
            for topic, indexes in ((ORDERS, [0, 1]), (GONE, [0]))
        ]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=wanted)])
    wire_request = message_codec(OffsetFetchRequest, version).parse(
        message_codec(OffsetFetchRequest, version).build(request)
    )
    answer = world.coordinator.fetch_offsets(wire_request, version)
    wire_answer = message_codec(OffsetFetchResponse, version).parse(
        message_codec(OffsetFetchResponse, version).build(answer)
    )
    orders, gone = wire_answer.topics if version < 8 else wire_answer.groups[0].topics
    first, second = orders.partitions
    assert (first.committed_offset, first.metadata, first.error_code) == (5, "m", 0)
    assert first.committed_leader_epoch == (2 if version >= 5 else -1)
    assert (second.committed_offset, second.metadata, second.error_code) == (-1, "", 0)
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version == 10 else ErrorCode.NONE
    assert (gone.partitions[0].committed_offset, gone.partitions[0].error_code) == (-1, expected)


@pytest.mark.parametrize("version", range(1, 11))
def test_where_the_error_stands_when_the_group_is_not_here(version: int) -> None:
    world = World()
    world.coordinator.unload(world.coordinator.partition_of("g"))
    request = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic("orders", [0])],
        groups=[OffsetFetchRequestGroup(group_id="g", topics=None)],
    )
    answer = world.coordinator.fetch_offsets(request, version)
    if version == 1:
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    elif version < 8:
        assert (answer.error_code, answer.topics) == (ErrorCode.NOT_COORDINATOR, [])
    else:
        assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR


def test_many_groups_in_one_fetch() -> None:
    world = World()
    world.commit(1, group="a").get()
    world.commit(2, group="b", topic=PAYMENTS).get()
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("a", "b", "nobody")]
    answer = world.coordinator.fetch_offsets(OffsetFetchRequest(groups=groups), 10)
    assert [(group.group_id, [topic.topic_id for topic in group.topics]) for group in answer.groups] == [
        ("a", [ORDERS.topic_id]),
        ("b", [PAYMENTS.topic_id]),
        ("nobody", []),
    ]


def test_a_topic_made_anew_has_no_commits() -> None:
    world = World()
    world.commit(5).get()
    world.topics.topics[0] = Topic("orders", b"n" * 16, 3)
    assert world.committed() == {}
    assert world.commit_error(1) == ErrorCode.NONE
    assert world.committed()["orders", 0][0] == 1


def test_an_offset_that_a_transaction_may_yet_change_is_unstable() -> None:
    world = World()
    world.commit(5).get()
    partition = world.coordinator.partition_of("g")
    image = world.store.image(partition)
    image.apply(*offset_record("g", "orders", 0, OffsetCommitValue(offset=9)), producer_id=77)
    world.coordinator.finish_load(world.coordinator.begin_load(partition), image)
    assert world.committed(stable=False)["orders", 0][0] == 5
    assert world.committed(stable=True) == {}
    world.coordinator.end_transaction(partition, 77, committed=True)
    assert world.committed(stable=True)["orders", 0][0] == 9


# --- delete -----------------------------------------------------------------------------------------------------------


def test_groups_without_members_can_be_deleted() -> None:
    world = World()
    world.commit(5, group="simple").get()
    [member] = world.stable(group="left")
    world.leave((member, None), group="left")
    world.stable(group="busy")
    assert delete_groups(world, "simple", "left", "busy", "nobody") == {
        "simple": ErrorCode.NONE,
        "left": ErrorCode.NONE,
        "busy": ErrorCode.NON_EMPTY_GROUP,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert listed(world) == {"busy": "Stable"}
    world.start()
    assert listed(world) == {"busy": "Stable"}
    assert world.committed("simple") == {}


def test_a_commit_that_overtakes_a_deletion() -> None:
    world = World()
    world.commit(1).get()
    world.store.hold()
    reply: Reply[DeleteGroupsResponse] = Reply()
    before = world.commit(2)
    world.coordinator.delete_groups(DeleteGroupsRequest(groups_names=["g"]), reply=reply)
    after = world.commit(3, partition=1)
    world.store.release_all()
    assert not before.is_open
    assert not after.is_open
    assert reply.get().results[0].error_code == ErrorCode.NONE
    seen = world.committed()
    assert seen == {("orders", 1): (3, -1, "")}
    world.start()
    assert world.committed() == seen


def test_a_group_whose_deletion_fails_stays() -> None:
    world = World()
    world.commit(1).get()
    world.store.fails_with = ErrorCode.REQUEST_TIMED_OUT
    assert delete_groups(world, "g") == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert listed(world) == {"g": "Empty"}
    assert world.committed()["orders", 0][0] == 1


def test_offsets_of_topics_that_nobody_consumes_can_be_deleted() -> None:
    world = World()
    [member] = world.stable()  # consumes orders
    world.commit(1, member, 1).get()
    world.commit(2, member, 1, topic=PAYMENTS).get()
    answer = delete_offsets(world, "orders", 0)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    answer = delete_offsets(world, "payments", 0, 1)
    assert [each.error_code for each in answer.topics[0].partitions] == [0, 0]
    assert list(world.committed()) == [("orders", 0)]
    assert delete_offsets(world, "gone", 0).topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete_offsets(world, "orders", 0, group="nobody").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_a_group_that_is_no_consumer_group_need_it_empty() -> None:
    world = World()
    told = world.join(protocol_type="connect").get()
    world.join(told.member_id, protocol_type="connect").get()
    assert delete_offsets(world, "orders", 0).error_code == ErrorCode.NON_EMPTY_GROUP


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    world = World()
    for group in ("a", "b"):
        world.commit(1, group=group).get()
        world.commit(2, group=group, topic=PAYMENTS).get()
    world.coordinator.topic_deleted("orders", b"another topic...")
    assert len(world.committed("a")) == 2
    world.coordinator.topic_deleted("orders", ORDERS.topic_id)
    world.start()
    for group in ("a", "b"):
        assert list(world.committed(group)) == [("payments", 0)]


# --- expiry -----------------------------------------------------------------------------------------------------------


def test_offsets_of_a_simple_group_expire_a_week_after_the_commit() -> None:
    world = World()
    world.commit(1).get()
    world.pass_time(WEEK / 2)
    world.commit(2, partition=1).get()
    world.pass_time(WEEK / 2 + 600)
    assert list(world.committed()) == [("orders", 1)]
    world.pass_time(WEEK / 2)
    assert listed(world) == {}
    world.start()
    assert listed(world) == {}


def test_how_far_a_stream_is_does_not_expire() -> None:
    world = World()
    world.commit(1, group="barnabas.streams").get()
    world.commit(1).get()
    world.pass_time(2 * WEEK)
    assert list(listed(world)) == ["barnabas.streams"]


def test_offsets_expire_a_week_after_the_last_member_left() -> None:
    world = World()
    [member] = world.stable()
    world.commit(1, member, 1).get()
    for _ in range(int(WEEK * 2 / 9)):
        world.pass_time(9)
        world.heartbeat(member, 1)
    assert list(world.committed()) == [("orders", 0)]  # consumed, so it stays however old it is
    world.leave((member, None))
    world.pass_time(WEEK - 1_200)
    assert list(world.committed()) == [("orders", 0)]
    world.pass_time(1_900)
    assert listed(world) == {}
    assert records(world)[-1].value is None  # type: ignore[attr-defined]


def test_a_commit_may_bring_its_own_retention() -> None:
    world = World(GroupConfig(offsets_retention_check_interval_ms=1_000))
    world.commit(1, version=4, retention_ms=60_000).get()
    assert records(world)[0][1][:2] == b"\0\1"  # type: ignore[index]
    world.start()
    world.pass_time(59)
    assert len(world.committed()) == 1
    world.pass_time(2)
    assert world.committed() == {}


# --- lists and records ------------------------------------------------------------------------------------------------


def test_lists_are_filtered_by_state_and_type() -> None:
    world = World()
    world.stable(group="busy")
    world.commit(1, group="simple").get()
    assert listed(world) == {"busy": "Stable", "simple": "Empty"}
    assert listed(world, states=["STABLE", "Dead"]) == {"busy": "Stable"}
    assert listed(world, types=["Classic"]) == {"busy": "Stable", "simple": "Empty"}
    assert listed(world, types=["consumer"]) == {}
    world.coordinator.begin_load(49)
    answer = world.coordinator.list_groups(ListGroupsRequest())
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_an_offset_is_written_as_kafka_writes_it() -> None:
    world = World()
    world.commit(258, epoch=1, metadata="m").get()
    [(key, value)] = records(world)
    assert key == bytes.fromhex("0001 0001 67 0006 6f7264657273 00000000")
    assert value == (
        bytes.fromhex("0004 0000000000000102 00000001 02 6d")
        + START_MS.to_bytes(8, "big")
        + bytes.fromhex("01 00 10")
        + ORDERS.topic_id
    )


def test_a_group_is_written_as_kafka_writes_it() -> None:
    world = World()
    world.stable()
    [(key, value)] = records(world)
    assert key == bytes.fromhex("0002 0001 67")
    assert value is not None
    assert value[:2] == b"\0\3"
    assert value[2:12] == b"\0\x08consumer"
