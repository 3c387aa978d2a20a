"""Requests with many elements: they are split, handled in pieces, and answered as one."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.net import large
from barnabas.broker.registry import APIS
from barnabas.broker.tests.client import Client, batch_of, frame_of
from barnabas.broker.tests.conftest import Start
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from barnabas.wire.types import Message

MANY = 3000

shapes = st.lists(st.lists(st.lists(st.integers(0, 9), max_size=7), max_size=4), max_size=4)


def offset_fetch(shape: list[list[list[int]]]) -> OffsetFetchRequest:
    groups = [
        OffsetFetchRequestGroup(
            f"g{g}",
            topics=[OffsetFetchRequestTopics(f"t{t}", partition_indexes=parts) for t, parts in enumerate(topics)],
        )
        for g, topics in enumerate(shape)
    ]
    return OffsetFetchRequest(groups=groups)


@given(shapes, st.integers(1, 9))
def test_pieces_are_small_and_joined_they_are_the_whole(shape: list[list[list[int]]], most: int) -> None:
    whole = offset_fetch(shape)
    path = ("groups", "topics", "partition_indexes")
    cut = list(large.pieces(whole, path, most))
    assert all(
        sum(max(1, len(t.partition_indexes)) for g in piece.groups for t in g.topics or ()) <= most for piece in cut
    )
    assert large.join(cut, path) == whole


@given(st.lists(st.integers(0, 3 * large.CHARACTERS)), st.integers(1, 9))
def test_long_texts_are_in_small_pieces(lengths: list[int], most: int) -> None:
    whole = DescribeGroupsRequest(groups=["x" * length for length in lengths])
    cut = list(large.pieces(whole, ("groups",), most))
    assert [group for piece in cut for group in piece.groups] == whole.groups
    for piece in cut:
        assert len(piece.groups) <= 1 or sum(1 + len(each) // large.CHARACTERS for each in piece.groups) <= most


def test_every_way_to_cut_names_lists_that_are_there() -> None:
    by_name = {api.name: api for api in APIS.values()}
    for name in [*large.CUTS, "OffsetFetch", "DeleteTopics"]:
        api = by_name[name]
        for version in (api.versions.first, api.versions.last):
            cut = large.cut_of(name, version)
            assert cut is not None
            for struct, path in ((api.request, cut.request), (api.response, cut.response)):
                assert path[0] in struct.__struct_fields__, (name, path)


async def test_a_large_request_is_answered_as_many_small_ones(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t", MANY)
        await client.produce("t", batch_of(b"v"), 7)

        async def offsets(indexes: range) -> list[tuple[int, int, int]]:
            parts = [ListOffsetsPartition(index, timestamp=-1) for index in indexes]
            answer = await client.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic("t", parts)]), 7)
            (topic,) = answer.topics
            return [(p.partition_index, p.error_code, p.offset) for p in topic.partitions]

        whole = await offsets(range(MANY + 5))
        small = [
            each
            for start in range(0, MANY + 5, 100)
            for each in await offsets(range(start, min(start + 100, MANY + 5)))
        ]
        assert whole == small
        assert whole[7] == (7, 0, 1)
        assert whole[-1][1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_large_commit_is_there_for_the_next_request(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t", MANY)
        await client.ask(FindCoordinatorRequest(key="g"), 3)
        parts = [OffsetCommitRequestPartition(index, index * 2) for index in range(MANY)]
        wanted = [OffsetFetchRequestTopics("t", partition_indexes=list(range(MANY)))]
        await client.send(OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=parts)]), 9)
        await client.send(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=wanted)]), 9)
        committed = await client.receive()
        assert [p.error_code for topic in committed.topics for p in topic.partitions] == [0] * MANY
        fetched = await client.receive()
        ((topic,),) = [group.topics for group in fetched.groups]
        assert [p.committed_offset for p in topic.partitions] == [index * 2 for index in range(MANY)]


async def test_a_refusal_of_the_whole_is_one_refusal(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        members = [MemberIdentity(f"member-{number}") for number in range(MANY)]
        answer = await client.ask(LeaveGroupRequest("g", members=members), 4)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR


async def test_names_of_topics_are_all_answered(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        names = [MetadataRequestTopic(name=f"topic-{number}") for number in range(MANY)]
        answer = await client.ask(MetadataRequest(names, False), 9)
        assert [topic.name for topic in answer.topics] == [name.name for name in names]
        groups = [f"group-{number}" for number in range(MANY)]
        assert [g.group_id for g in (await client.ask(DescribeGroupsRequest(groups), 5)).groups] == groups


async def test_others_are_served_while_a_large_request_is_handled(start: Start) -> None:
    """Each piece of a large request ends with a pass of the event loop, so other requests are handled in between."""
    async with start() as broker, await broker.client() as pushing, await broker.client() as other:
        names = [MetadataRequestTopic(name=f"{number:x}") for number in range(150_000)]
        asked = frame_of(MetadataRequest(names, False), 9)
        answered = trio.Event()

        async def push() -> None:
            await pushing.send_bytes(asked)
            await pushing.receive_frame()
            answered.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(push)
            between = 0
            while not answered.is_set():
                await other.ask(HeartbeatRequest("g", 1, "m"), 3)
                between += 1
        assert between > 20


async def test_too_many_elements_end_the_connection(start: Start) -> None:
    async with start() as broker:
        for request, version in (
            (LeaveGroupRequest("g", members=[MemberIdentity("m")] * (large.MAX_WHOLE_ELEMENTS + 1)), 4),
            (MetadataRequest([MetadataRequestTopic(name="m")] * (large.MAX_ELEMENTS + 1), False), 9),
        ):
            async with await broker.client() as client:
                await client.send_bytes(frame_of(request, version))
                assert await client.is_closed()
        async with await broker.client() as client:
            await still_serves(client)


async def still_serves(client: Client) -> None:
    assert (await client.ask(MetadataRequest(topics=[]), 9)).brokers


LONG = [f"{number}" + "x" * 5000 for number in range(100)]


@pytest.mark.parametrize(
    "request_",
    [
        FindCoordinatorRequest(key_type=0, coordinator_keys=LONG),
        DescribeGroupsRequest(groups=LONG),
        DeleteGroupsRequest(groups_names=LONG),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=each, topics=None) for each in LONG]),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_others_are_answered_while_long_ids_are_hashed(
    start: Start, monkeypatch: pytest.MonkeyPatch, request_: Message
) -> None:
    async with start() as broker, await broker.client() as client, await broker.client() as honest:
        await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        coordinator, answers, seen = broker.node.groups.coordinator, 0, dict[str, int]()
        partition_of = coordinator.partition_of

        def noted(key: str) -> int:
            seen[key] = answers
            return partition_of(key)

        monkeypatch.setattr(coordinator, "partition_of", noted)
        monkeypatch.setattr(coordinator.shards, "partition_of", noted)
        monkeypatch.setattr("barnabas.broker.workers.HOLD_SECONDS", 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.ask, request_)
            while len(seen) < len(LONG):
                await honest.ask(ApiVersionsRequest())
                answers += 1
        assert min(seen.values()) < max(seen.values())


async def test_an_answer_about_more_topics_than_are_freed_at_once_is_whole(start: Start) -> None:
    async with start() as running, await running.client() as client:
        for first in range(0, 1200, 400):
            topics = [CreatableTopic(f"t{n:04}", 1, 1) for n in range(first, first + 400)]
            answer = await client.ask(CreateTopicsRequest(topics=topics))
            assert not any(each.error_code for each in answer.topics)
        for version in (9, 12):  # at version 9 the handler makes a list of its own
            told = await client.ask(MetadataRequest(topics=None), version)
            assert [each.name for each in told.topics] == [f"t{n:04}" for n in range(1200)]


async def test_logs_that_are_closed_are_opened_one_by_one(start: Start) -> None:
    """Another request is answered while offsets of many closed logs are looked up."""
    async with start() as running, await running.client() as client:
        await client.create_topic("t", 200)
        for index in (0, 120):
            assert (await client.produce("t", batch_of(b"a", b"b"), index)).error_code == 0
    async with start() as running, await running.client() as client:
        vnodes = running.node.data_dir.vnodes
        assert not any(vnodes["t", index].loaded for index in range(200))
        parts = [ListOffsetsPartition(index, timestamp=-1) for index in range(201)]
        pieces = 0

        async def count() -> None:
            nonlocal pieces
            while not vnodes["t", 199].loaded:
                pieces += any(vnodes["t", index].loaded for index in range(200))
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            answer = await client.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic("t", parts)]))
        (topic,) = answer.topics
        ends = {part.partition_index: (part.error_code, part.offset) for part in topic.partitions}
        assert ends[0] == ends[120] == (0, 2)
        assert ends[1] == (0, 0)
        assert ends[200][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert pieces > 0, "no other task ran while logs were opened"
