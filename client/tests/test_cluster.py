"""Brokers that go away, come back and hand over, from the client's view."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from barnabas.client import offsets
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, LostError, NoLeaderError, RefusedError, UnknownFateError
from barnabas.client.offsets import LATEST, list_offsets
from barnabas.client.tests.scripted import FakeTime, metadata, scripted
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from barnabas.wire.types import replace


class Two:
    """Two brokers, the `leaders` of topic `t`, and ListOffsets answers with the broker's number."""

    def __init__(self, stack: ExitStack) -> None:
        self.leaders = {"t": {0: 1, 1: 2}}
        self.one, self.two = (stack.enter_context(scripted()) for _ in range(2))
        for number, each in ((1, self.one), (2, self.two)):
            each.play[MetadataRequest] = lambda request: metadata({1: self.one, 2: self.two}, self.leaders, request)
            each.play[ListOffsetsRequest] = partial(self._offsets, number)
        self.time = FakeTime()
        self.cluster = Cluster(str(self.one.address), timing=self.time.timing)
        stack.enter_context(self.cluster)

    def _offsets(self, number: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=part.partition_index,
                            error_code=ErrorCode.NONE
                            if self.leaders[topic.name].get(part.partition_index) == number
                            else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                            offset=number,
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


@pytest.fixture
def two() -> Iterator[Two]:
    with ExitStack() as stack:
        yield Two(stack)


BOTH = [("t", 0), ("t", 1)]


# --- bootstrap --------------------------------------------------------------------------------------------------------


def test_the_first_server_that_answers_is_taken() -> None:
    with scripted() as gone:
        pass
    with scripted() as here, Cluster(f"{gone.address},{here.address}") as cluster:
        assert cluster.leaders("t") == {0: 1}


def test_no_server_answers() -> None:
    with scripted() as one, scripted() as other:
        pass
    time = FakeTime()
    with pytest.raises(LostError, match=rf"{one.address}.*{other.address}"):
        Cluster(f"{one.address},{other.address}", timing=time.timing)
    assert not time.slept, "a broker that has never been there is not waited for"


# --- leaders ----------------------------------------------------------------------------------------------------------


def test_each_leader_is_asked_once_for_all_of_its_partitions(two: Two) -> None:
    two.leaders["t"] = {0: 1, 1: 2, 2: 1, 3: 2}
    asked = [("t", partition) for partition in range(4)]
    assert list_offsets(two.cluster, asked, LATEST) == {("t", 0): 1, ("t", 1): 2, ("t", 2): 1, ("t", 3): 2}
    assert (two.one.asked(ListOffsetsRequest), two.two.asked(ListOffsetsRequest)) == (1, 1)
    assert two.one.asked(MetadataRequest) == 1, "what is known of leaders is kept"
    list_offsets(two.cluster, asked, LATEST)
    assert two.one.asked(MetadataRequest) == 1


def test_many_partitions_are_asked_for_in_pieces(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that opens a log for each of 100,000 partitions would need longer than a client waits."""
    monkeypatch.setattr(offsets, "MOST_ASKED", 3)
    two.leaders["t"] = dict.fromkeys(range(7), 1)
    asked = [("t", partition) for partition in range(7)]
    assert list_offsets(two.cluster, asked, LATEST) == dict.fromkeys(asked, 1)
    assert two.one.asked(ListOffsetsRequest) == 3


def test_a_leader_that_has_moved_is_looked_for_and_the_others_are_not_asked_again(two: Two) -> None:
    list_offsets(two.cluster, BOTH, LATEST)
    two.leaders["t"] = {0: 2, 1: 2}
    assert list_offsets(two.cluster, BOTH, LATEST) == {("t", 0): 2, ("t", 1): 2}
    assert two.time.slept == [0.1]
    last = two.two.requests[-1]
    assert [part.partition_index for topic in last.topics for part in topic.partitions] == [0]


def test_a_partition_without_a_leader_is_waited_for(two: Two) -> None:
    two.leaders["t"] = {0: -1}

    def elected(seconds: float) -> None:
        two.leaders["t"] = {0: 2}
        real(seconds)

    real, two.time.sleep = two.time.sleep, elected  # type: ignore[method-assign]
    cluster = Cluster(str(two.one.address), timing=two.time.timing)
    assert list_offsets(cluster, [("t", 0)], LATEST) == {("t", 0): 2}


def test_it_is_not_waited_for_without_end(two: Two) -> None:
    two.leaders["t"] = {0: -1}
    with pytest.raises(NoLeaderError, match=r"offsets of t-0: there is no leader now"):
        list_offsets(two.cluster, [("t", 0)], LATEST)
    assert 25 < two.time.now <= 30


@pytest.mark.parametrize("key", [("absent", 0), ("t", 9)])
def test_what_is_not_there_is_told_at_once(two: Two, key: tuple[str, int]) -> None:
    with pytest.raises(ClientError, match=rf"offsets of {key[0]}-{key[1]}: UNKNOWN_TOPIC_OR_PARTITION"):
        list_offsets(two.cluster, [key], LATEST)
    assert not two.time.slept


def test_a_topic_that_is_deleted_meanwhile_ends_the_asking(two: Two) -> None:
    list_offsets(two.cluster, BOTH, LATEST)
    two.leaders = {}
    two.one.play[ListOffsetsRequest] = two.two.play[ListOffsetsRequest] = lambda request: ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name="t",
                partitions=[
                    ListOffsetsPartitionResponse(p.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    for p in request.topics[0].partitions
                ],
            )
        ]
    )
    with pytest.raises(RefusedError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        list_offsets(two.cluster, BOTH, LATEST)
    assert two.time.slept == [0.1]


def test_an_answer_that_leaves_out_what_was_asked_is_told(two: Two) -> None:
    two.one.play[ListOffsetsRequest] = lambda _: ListOffsetsResponse()
    with pytest.raises(ClientError, match="offsets of t-0: the broker's answer does not have it"):
        list_offsets(two.cluster, [("t", 0)], LATEST)
    two.one.play[MetadataRequest] = lambda request: MetadataResponse()
    with pytest.raises(ClientError, match="Topic other: the broker's answer does not have it"):
        two.cluster.leaders("other")


def test_an_unknown_error_code_has_its_number(two: Two) -> None:
    part = ListOffsetsPartitionResponse(0, 9999)
    two.one.play[ListOffsetsRequest] = lambda _: ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [part])])
    with pytest.raises(RefusedError, match="offsets of t-0: error 9999"):
        list_offsets(two.cluster, [("t", 0)], LATEST)


# --- lost connections -------------------------------------------------------------------------------------------------


def test_what_may_be_repeated_is_repeated_when_the_connection_is_lost(two: Two) -> None:
    answers = two.one.play[MetadataRequest]

    def hangs_up(request: MetadataRequest) -> None:
        two.one.play[MetadataRequest] = answers

    two.one.play[MetadataRequest] = hangs_up
    assert [topic.name for topic in two.cluster.metadata(None)] == ["t"]
    assert two.one.connections == 2
    assert two.time.slept == [0.1]


def test_what_may_not_be_repeated_is_not_and_its_fate_is_told_as_unknown(two: Two) -> None:
    two.one.play[CreateTopicsRequest] = lambda _: None
    cluster = Cluster(str(two.one.address), timing=two.time.timing)
    with pytest.raises(UnknownFateError, match="whether CreateTopics was carried out is not known"):
        cluster.controller(CreateTopicsRequest(), CreateTopicsResponse)
    assert two.one.asked(CreateTopicsRequest) == 1
    assert not two.time.slept


def test_a_connection_that_was_closed_while_idle_costs_nothing(two: Two) -> None:
    """A broker closes a connection that was idle for ten minutes. No request is open, so all may be sent again."""
    two.one.play[CreateTopicsRequest] = lambda _: CreateTopicsResponse()
    cluster = Cluster(str(two.one.address), timing=two.time.timing)
    cluster.controller(CreateTopicsRequest(), CreateTopicsResponse)
    two.one.hang_up()
    cluster.controller(CreateTopicsRequest(), CreateTopicsResponse)
    assert two.one.asked(CreateTopicsRequest) == 2
    assert not two.time.slept


def test_a_broker_that_is_away_is_waited_for(two: Two) -> None:
    list_offsets(two.cluster, BOTH, LATEST)
    two.one.stop()

    def back(seconds: float) -> None:
        if len(two.time.slept) == 2:
            two.one.start()
        real(seconds)

    real, two.time.sleep = two.time.sleep, back  # type: ignore[method-assign]
    cluster = Cluster(str(two.two.address), timing=two.time.timing)
    assert list_offsets(cluster, BOTH, LATEST) == {("t", 0): 1, ("t", 1): 2}
    assert two.time.slept == [0.1, 0.2, 0.4]


def test_a_broker_that_stays_away_is_not_waited_for_without_end(two: Two) -> None:
    two.one.stop()
    with pytest.raises(LostError, match="Cannot connect"):
        two.cluster.metadata(None)
    assert 25 < two.time.now <= 30


def test_without_patience_a_lost_connection_is_told_at_once_and_made_anew_the_next_time(two: Two) -> None:
    with two.cluster.without_patience():
        two.one.play[ListOffsetsRequest], plays = (lambda _: None), two.one.play[ListOffsetsRequest]
        with pytest.raises(LostError):
            list_offsets(two.cluster, [("t", 0)], LATEST)
        two.one.play[ListOffsetsRequest] = plays
        assert list_offsets(two.cluster, [("t", 0)], LATEST) == {("t", 0): 1}
    assert not two.time.slept


def test_a_leader_whose_broker_has_moved_is_found_at_its_new_address(two: Two) -> None:
    list_offsets(two.cluster, BOTH, LATEST)
    two.two.stop()
    two.two.address = two.two.address._replace(port=0)
    two.two.start()
    assert list_offsets(two.cluster, BOTH, LATEST) == {("t", 0): 1, ("t", 1): 2}


def test_another_broker_is_asked_when_the_bootstrap_server_is_gone(two: Two) -> None:
    list_offsets(two.cluster, BOTH, LATEST)
    two.one.stop()
    two.leaders["t"] = {0: 2, 1: 2}
    two.two.play[MetadataRequest] = lambda request: metadata({2: two.two}, two.leaders, request)
    assert list_offsets(two.cluster, BOTH, LATEST) == {("t", 0): 2, ("t", 1): 2}


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("a" * 100, 1), ("", -1)])
def test_an_address_that_is_none_is_like_a_broker_that_is_gone(two: Two, host: str, port: int) -> None:
    def lies(request: MetadataRequest) -> MetadataResponse:
        told = metadata({1: two.one, 2: two.two}, two.leaders, request)
        return replace(told, brokers=[MetadataResponseBroker(1, host, port)])

    two.one.play[MetadataRequest] = lies
    with pytest.raises(LostError, match="Cannot connect to"):
        list_offsets(two.cluster, [("t", 0)], LATEST)
    assert 25 < two.time.now <= 30


# --- coordinators -----------------------------------------------------------------------------------------------------


def test_a_coordinator_is_looked_for_until_there_is_one(two: Two) -> None:
    codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE]
    two.one.play[FindCoordinatorRequest] = lambda _: FindCoordinatorResponse(error_code=codes.pop(0), node_id=2)
    cluster = Cluster(str(two.one.address), timing=two.time.timing)
    assert cluster.coordinator("g").address == two.two.address
    assert cluster.coordinator("g").address == two.two.address
    assert two.one.asked(FindCoordinatorRequest) == 2
    assert two.time.slept == [0.1]


def test_a_group_that_may_not_be_seen_has_none(two: Two) -> None:
    two.one.play[FindCoordinatorRequest] = lambda _: FindCoordinatorResponse(
        error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message="not yours"
    )
    cluster = Cluster(str(two.one.address), timing=two.time.timing)
    with pytest.raises(RefusedError, match=r"Coordinator of group g: GROUP_AUTHORIZATION_FAILED \(not yours\)"):
        cluster.coordinator("g")
    assert not two.time.slept


# --- topics that are made ---------------------------------------------------------------------------------------------


def test_a_topic_that_is_made_in_the_background_is_waited_for(two: Two) -> None:
    def made(request: MetadataRequest) -> MetadataResponse:
        answer = metadata({1: two.one}, two.leaders, request)
        two.leaders["new"] = {0: 1}
        return answer

    two.one.play[MetadataRequest] = made
    assert two.cluster.leaders("new", create=True) == {0: 1}
    assert two.one.requests[-1].allow_auto_topic_creation


def test_a_topic_that_is_never_made_is_given_up_sooner_than_the_rest(two: Two) -> None:
    with pytest.raises(RefusedError, match="Topic new: UNKNOWN_TOPIC_OR_PARTITION"):
        two.cluster.leaders("new", create=True)
    assert 10 < two.time.now <= 15
