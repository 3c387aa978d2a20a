"""Groups whose coordinator moves, loads and refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, RefusedError
from barnabas.client.groups import Committed, GroupMember, Rebalance, commit, committed
from barnabas.client.tests.scripted import FakeTime, Scripted, metadata, scripted
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class Coordinators:
    """Two brokers. `at` coordinates group `g`; the other one says that it does not."""

    def __init__(self, one: Scripted, two: Scripted) -> None:
        self.brokers = {1: one, 2: two}
        self.at = 1
        self.time = FakeTime()
        self.commit_codes: list[int] = []
        self.positions = {("t", 0): Committed(7, "note"), ("t", 1): Committed(-1)}
        for number, broker in self.brokers.items():
            broker.play[MetadataRequest] = lambda request: metadata(self.brokers, {"t": {0: 1, 1: 1}}, request)
            broker.play[FindCoordinatorRequest] = lambda _: FindCoordinatorResponse(node_id=self.at)
            broker.play[OffsetFetchRequest] = lambda _, number=number: self._positions(number)  # type: ignore[misc]
            broker.play[OffsetCommitRequest] = self._committed
        self.cluster = Cluster(str(one.address), timing=self.time.timing)

    def _positions(self, number: int) -> OffsetFetchResponse:
        if number != self.at:
            return OffsetFetchResponse(error_code=ErrorCode.NOT_COORDINATOR)
        parts = [
            OffsetFetchResponsePartition(partition, at.offset, metadata=at.metadata)
            for (_, partition), at in self.positions.items()
        ]
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", parts)])

    def _committed(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        code = self.commit_codes.pop(0) if self.commit_codes else 0
        parts = [OffsetCommitResponsePartition(part.partition_index, code) for part in request.topics[0].partitions]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic("t", partitions=parts)])


@pytest.fixture
def group() -> Iterator[Coordinators]:
    with scripted() as one, scripted() as two:
        made = Coordinators(one, two)
        with made.cluster:
            yield made


def test_positions_come_from_whichever_broker_coordinates_the_group(group: Coordinators) -> None:
    assert committed(group.cluster, "g") == {("t", 0): Committed(7, "note")}
    group.at = 2
    assert committed(group.cluster, "g", [("t", 0), ("t", 1)]) == {("t", 0): Committed(7, "note")}
    assert group.time.slept == [0.1]
    assert group.brokers[1].asked(FindCoordinatorRequest) == 2
    assert group.brokers[2].requests[-1].topics[0].partition_indexes == [0, 1]


def test_a_coordinator_that_loads_is_waited_for(group: Coordinators) -> None:
    group.commit_codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    assert commit(group.cluster, "g", {("t", 0): Committed(5)}) == {("t", 0): 0}
    assert group.time.slept == [0.1, 0.2]


def test_a_commit_that_is_refused_says_where(group: Coordinators) -> None:
    group.commit_codes = [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert commit(group.cluster, "g", {("t", 0): Committed(5)}) == {("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE}


def test_a_commit_that_the_answer_is_silent_of_is_no_success(group: Coordinators) -> None:
    group.brokers[1].play[OffsetCommitRequest] = lambda _: OffsetCommitResponse()
    with pytest.raises(ClientError, match="Commit of t-0: the broker's answer does not have it"):
        commit(group.cluster, "g", {("t", 0): Committed(5)})


def member(group: Coordinators) -> GroupMember:
    """A member that has joined and leads."""
    generation = 3

    def joined(request: JoinGroupRequest) -> JoinGroupResponse:
        if not request.member_id:
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m")
        return JoinGroupResponse(generation_id=generation, leader="m", member_id="m", members=[])

    group.brokers[1].play[JoinGroupRequest] = joined
    group.brokers[1].play[SyncGroupRequest] = lambda _: SyncGroupResponse(assignment=b"")
    group.brokers[1].play[HeartbeatRequest] = lambda _: HeartbeatResponse()
    made = GroupMember(Cluster(str(group.brokers[1].address), timing=group.time.timing), "g", "t")
    assert made.join() == []
    return made


def test_a_member_is_told_its_id_and_joins_with_it(group: Coordinators) -> None:
    made = member(group)
    assert (made.member_id, made.generation) == ("m", 3)
    assert group.brokers[1].asked(JoinGroupRequest) == 2


def test_a_heartbeat_that_is_lost_is_sent_again(group: Coordinators) -> None:
    made = member(group)

    def hangs_up(_: HeartbeatRequest) -> None:
        group.brokers[1].play[HeartbeatRequest] = lambda _: HeartbeatResponse()

    group.brokers[1].play[HeartbeatRequest] = hangs_up
    made.heartbeat()
    assert group.brokers[1].asked(HeartbeatRequest) == 2


@pytest.mark.parametrize(
    "code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID]
)
def test_the_end_of_a_generation_is_told(group: Coordinators, code: ErrorCode) -> None:
    made = member(group)
    group.brokers[1].play[HeartbeatRequest] = lambda _: HeartbeatResponse(error_code=code)
    with pytest.raises(Rebalance):
        made.heartbeat()
    group.commit_codes = [code]
    with pytest.raises(Rebalance):
        made.commit({0: 4})


def test_a_member_that_is_refused_is_told_why(group: Coordinators) -> None:
    made = member(group)
    group.brokers[1].play[HeartbeatRequest] = lambda _: HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)
    with pytest.raises(RefusedError, match="Heartbeat: FENCED_INSTANCE_ID"):
        made.heartbeat()
    group.brokers[1].play[JoinGroupRequest] = lambda _: JoinGroupResponse(
        error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    with pytest.raises(ClientError, match="Join of group g: INCONSISTENT_GROUP_PROTOCOL"):
        made.join()


def test_who_leaves_does_not_wait_for_a_broker_that_is_gone(group: Coordinators) -> None:
    made = member(group)
    group.brokers[1].play[LeaveGroupRequest] = lambda _: None
    group.brokers[1].stop()
    made.leave({0: 4})
    assert not group.time.slept
