"""A group of another type than classic: everything except membership uses it through the interface `Group` only."""

from __future__ import annotations

import pytest

from barnabas.groupcoord.config import GroupConfig
from barnabas.groupcoord.group import Group, OffsetExpiration
from barnabas.groupcoord.log.records import CoordinatorRecord
from barnabas.groupcoord.tests.harness import ORDERS, PAYMENTS, Reply, World
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.messages.describe_groups import DescribedGroup
from barnabas.wire.messages.list_groups import ListGroupsRequest
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

MEMBER = "m"
EPOCH = 7


class OneMember:
    """A group of type "share" with one member, which consumes orders until it leaves."""

    group_type = "share"
    protocol_type: str | None = "share"

    def __init__(self) -> None:
        self.group_id = "g"
        self.is_empty = False
        self.shut_down_with: ErrorCode | None = None

    @property
    def member_count(self) -> int:
        return 0 if self.is_empty else 1

    @property
    def state_name(self) -> str:
        return "Empty" if self.is_empty else "Stable"

    @property
    def is_idle(self) -> bool:
        return self.is_empty

    def is_subscribed(self, topic: str) -> bool:
        return topic == "orders" and not self.is_empty

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool = False
    ) -> None:
        if member_id != MEMBER:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "no such member")
        if generation != EPOCH:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH, "another epoch")

    def check_offset_delete(self) -> None:
        pass

    def offset_expiration(self) -> OffsetExpiration | None:
        return OffsetExpiration(None)

    def describe(self) -> DescribedGroup:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a classic group.")

    def records(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(b"\0\xff", b"state")]

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(b"\0\xff", None)]

    def shut_down(self, error: ErrorCode) -> None:
        self.shut_down_with = error


@pytest.fixture
def world() -> World:
    return World(GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1_000))


@pytest.fixture
def group(world: World) -> OneMember:
    group = OneMember()
    shards = world.coordinator.shards
    added: Group = shards.add(shards.of("g"), group)
    assert added is group
    return group


def last_records(world: World) -> list[CoordinatorRecord]:
    return world.store.log[world.coordinator.partition_of("g")]


def delete(world: World) -> int:
    reply: Reply[DeleteGroupsResponse] = Reply()
    world.coordinator.delete_groups(DeleteGroupsRequest(groups_names=["g"]), reply=reply)
    return reply.get().results[0].error_code


def test_it_is_listed_by_its_type(world: World, group: OneMember) -> None:
    world.stable(group="classic one")
    for types, found in (([], {"g", "classic one"}), (["Share"], {"g"}), (["classic"], {"classic one"})):
        listed = world.coordinator.list_groups(ListGroupsRequest(types_filter=types)).groups
        assert {each.group_id for each in listed} == found
    (share,) = world.coordinator.list_groups(ListGroupsRequest(types_filter=["share"])).groups
    assert (share.group_type, share.group_state, share.protocol_type) == ("share", "Stable", "share")


def test_it_says_itself_how_it_is_described(world: World, group: OneMember) -> None:
    told = world.describe()
    assert (told.error_code, told.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert told.error_message == "Group g is not a classic group."
    assert world.describe(version=5).error_code == ErrorCode.NONE


def test_its_members_may_commit_and_nobody_else(world: World, group: OneMember) -> None:
    assert world.commit_error(1, MEMBER, EPOCH) == ErrorCode.NONE
    assert world.commit_error(2, "stranger", EPOCH) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit_error(2, MEMBER, EPOCH - 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert world.committed() == {("orders", 0): (1, -1, "")}
    assert world.coordinator.groups["g"] is group


def test_offsets_that_it_consumes_stay_others_expire(world: World, group: OneMember) -> None:
    world.commit(1, MEMBER, EPOCH).get()
    world.commit(2, MEMBER, EPOCH, topic=PAYMENTS).get()
    world.pass_time(70)
    assert list(world.committed()) == [("orders", 0)]
    group.is_empty = True
    world.pass_time(2)
    assert world.committed() == {}
    assert "g" not in world.coordinator.groups
    assert group.shut_down_with == ErrorCode.UNKNOWN_MEMBER_ID
    assert last_records(world)[-1] == CoordinatorRecord(b"\0\xff", None)


def test_offsets_are_deleted_unless_it_consumes_them(world: World, group: OneMember) -> None:
    world.commit(1, MEMBER, EPOCH).get()
    world.commit(2, MEMBER, EPOCH, topic=PAYMENTS).get()
    reply: Reply[OffsetDeleteResponse] = Reply()
    topics = [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(0)]) for name in ("orders", "payments")]
    world.coordinator.delete_offsets(OffsetDeleteRequest("g", topics), reply=reply)
    codes = [topic.partitions[0].error_code for topic in reply.get().topics]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert list(world.committed()) == [("orders", 0)]


def test_it_is_deleted_when_it_is_empty(world: World, group: OneMember) -> None:
    world.commit(1, MEMBER, EPOCH).get()
    assert delete(world) == ErrorCode.NON_EMPTY_GROUP
    group.is_empty = True
    assert delete(world) == ErrorCode.NONE
    assert "g" not in world.coordinator.groups
    assert [record.value for record in last_records(world)[-2:]] == [None, None]


def test_a_topic_that_goes_takes_its_offsets_along(world: World, group: OneMember) -> None:
    world.commit(1, MEMBER, EPOCH).get()
    world.coordinator.topic_deleted("orders", ORDERS.topic_id)
    assert world.committed() == {}
    assert world.coordinator.groups["g"] is group


def test_it_goes_with_its_partition(world: World, group: OneMember) -> None:
    world.coordinator.unload(world.coordinator.partition_of("g"))
    assert group.shut_down_with == ErrorCode.NOT_COORDINATOR
    assert "g" not in world.coordinator.groups


def test_members_of_the_classic_protocol_are_told_that_it_is_not_theirs(world: World, group: OneMember) -> None:
    for member in ("", "somebody"):
        assert world.join(member).get().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync("somebody", 1).get().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("somebody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave(("somebody", None)).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.coordinator.groups["g"] is group
