"""Clients can finish what they have begun when their partition moves, whichever node dies meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.broker.between.followed_topics import FollowedTopics
from barnabas.broker.tests.client import batch_of, produce_request
from barnabas.broker.tests.conftest import until
from barnabas.broker.tests.several import OWNER, Several, several
from barnabas.broker.tests.test_several_nodes import leads, move
from barnabas.storage.unflushed import LocalFlushJob
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.wire.types import Message


async def with_topic(nodes: Several) -> None:
    """Create a topic `t` whose only partition is led by node 2."""
    await (await nodes.client(1)).create_topic("t", 1)
    if (await nodes.leaders("t"))[0] != 2:
        await moved(nodes, 2)


async def moved(nodes: Several, target: int) -> None:
    assert await move(nodes, "t", {0: target}) == [0]
    await arrived(nodes, target)


async def arrived(nodes: Several, target: int) -> None:
    await until(lambda: all(leads(each.node, "t", 0, target) for each in nodes.running.values()))


def held(nodes: Several, node: int) -> trio.Event:
    """The node applies no change of the metadata until the returned event is set."""
    topics, goes_on = nodes[node].node.topics, trio.Event()
    assert isinstance(topics, FollowedTopics)
    follow = topics.follow

    async def follow_later(records: Sequence[Message], timestamp: int) -> None:
        await goes_on.wait()
        await follow(records, timestamp)

    topics.follow = follow_later  # type: ignore[method-assign]
    return goes_on


async def test_an_idempotent_producer_goes_on_at_the_new_leader(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        await with_topic(nodes)
        producer = await (await nodes.client(1)).ask(InitProducerIdRequest(transactional_id=None))

        async def sent(leader: int, sequence: int) -> tuple[int, int]:
            settings = {"producer_id": producer.producer_id, "producer_epoch": 0, "base_sequence": sequence}
            answer = await (await nodes.client(leader)).produce("t", batch_of(b"v", **settings))
            return answer.error_code, answer.base_offset

        assert await sent(2, 0) == (0, 0)
        await moved(nodes, 3)
        assert await sent(2, 0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert await sent(3, 0) == (0, 0), "it is there already"
        assert await sent(3, 2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await sent(3, 1) == (0, 1)
        await moved(nodes, 1)
        assert await sent(1, 1) == (0, 1)
        assert await sent(1, 2) == (0, 2)
        nodes.no_errors()


async def test_a_fetch_session_is_told_that_the_leader_has_moved_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        await with_topic(nodes)
        client = await nodes.client(2)
        topic_id = nodes.owner.metadata.topics["t"].topic_id
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic_id=topic_id, partitions=[part])]
        begun = await client.ask(FetchRequest(session_epoch=0, topics=topics))
        assert begun.session_id

        async def further(session_epoch: int) -> list[int]:
            asked = FetchRequest(session_id=begun.session_id, session_epoch=session_epoch)
            return [p.error_code for topic in (await client.ask(asked)).responses for p in topic.partitions]

        assert await further(1) == []
        await moved(nodes, 3)
        assert await further(2) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await moved(nodes, 2)
        assert (await client.produce("t", batch_of(b"v"))).error_code == 0
        assert await further(3) == [0]
        nodes.no_errors()


async def test_a_fetch_that_waits_is_answered_when_the_leader_moves(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        await with_topic(nodes)
        client = await nodes.client(2)
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic="t", partitions=[part])]
        await client.send(FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=topics), 12)
        await moved(nodes, 3)
        answer = (await client.receive()).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        nodes.no_errors()


async def test_each_leader_writes_in_an_epoch_of_its_own_that_clients_may_ask_for(tmp_path: Path) -> None:
    """KIP-320. This holds also if a leader died and recovered the partition before the next move."""
    async with several(tmp_path) as nodes:
        await with_topic(nodes)
        ends: dict[int, int] = {}
        for count, target in enumerate((2, 3, 1, 2), 1):
            if target != 2 or count > 1:
                await moved(nodes, target)
            epoch = nodes.owner.metadata.topics["t"].partitions[0].epoch
            assert (await (await nodes.client(target)).produce("t", batch_of(b"v"))).error_code == 0
            ends[epoch] = count
            if target == 3:
                await nodes.cut_off(3)
                await nodes.start(3)
        assert len(ends) == 4
        now = max(ends)

        async def end_of(epoch: int, current: int) -> Any:
            part = OffsetForLeaderPartition(0, current_leader_epoch=current, leader_epoch=epoch)
            asked = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic("t", [part])])
            return (await (await nodes.client(2)).ask(asked)).topics[0].partitions[0]

        for epoch, end in ends.items():
            told = await end_of(epoch, now)
            assert (told.error_code, told.leader_epoch, told.end_offset) == (0, epoch, end)
        assert (await end_of(now, now - 1)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await end_of(now, now + 1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        nodes.no_errors()


@pytest.mark.parametrize("dies", [(OWNER,), (2,), (3,), (2, 3), (OWNER, 2), (OWNER, 3)])
async def test_a_move_arrives_whoever_dies_before_the_partition_was_put_away(
    tmp_path: Path, dies: tuple[int, ...]
) -> None:
    async with several(tmp_path) as nodes:
        await with_topic(nodes)
        assert (await (await nodes.client(2)).produce("t", batch_of(b"v"))).error_code == 0
        goes_on = held(nodes, 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_begin_to_move, nodes)
            await until(lambda: leads(nodes.owner, "t", 0, -1))
            for node in dies:
                await nodes.cut_off(node)
            goes_on.set()
            for node in dies:
                await nodes.start(node)
            nursery.cancel_scope.cancel()
        await arrived(nodes, 3)
        written = await (await nodes.client(3)).produce("t", batch_of(b"v"))
        assert (written.error_code, written.base_offset) == (0, 1)
        await (await nodes.client(1)).create_topic("later", 1)


async def _begin_to_move(nodes: Several) -> None:
    """Start a move to node 3. The answer waits for node 2."""
    part = ReassignablePartition(0, [3])
    async with await nodes[OWNER].client() as client:
        await client.send(AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("t", [part])]))
        await trio.sleep_forever()


class SlowDisk:
    """The disk of a node, on which fsyncs of a partition's files wait until `goes_on`."""

    def __init__(self, nodes: Several, node: int, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.goes_on, self.waits = threading.Event(), threading.Event()
        run = LocalFlushJob.run

        def run_later(job: LocalFlushJob) -> None:
            if f"/{folder}/" in job.segment.path():
                self.waits.set()
                self.goes_on.wait(60)
            run(job)

        monkeypatch.setattr(LocalFlushJob, "run", run_later)
        flusher = nodes[node].node.flusher
        flusher._kernel, flusher._spot_seconds = None, -1.0  # in a thread, always


async def test_batches_that_wait_for_the_disk_when_their_partition_goes_are_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a producer without idempotence does not write it twice."""
    async with several(tmp_path) as nodes:
        await with_topic(nodes)
        disk = SlowDisk(nodes, 2, "t-0", monkeypatch)
        client = await nodes.client(2)
        await client.send(produce_request("t", batch_of(b"v")), 9)
        await trio.to_thread.run_sync(disk.waits.wait)
        await client.send(produce_request("t", batch_of(b"w")), 9)  # it waits for the fsync after this one
        await until(lambda: nodes[2].node.vnodes["t", 0].log_end_offset == 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(moved, nodes, 3)
            await until(lambda: nodes[2].node.metadata.topics["t"].partitions[0].node != 2)
            disk.goes_on.set()
            for offset in range(2):
                answer = (await client.receive()).responses[0].partition_responses[0]
                assert (answer.error_code, answer.base_offset) == (0, offset)
        found = await (await nodes.client(3)).fetch("t")
        assert (found.error_code, found.high_watermark) == (0, 2)


async def test_a_batch_on_disk_is_acknowledged_although_its_request_waits_for_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition of the first batch moves while the second batch waits for the disk."""
    async with several(tmp_path) as nodes:
        await with_topic(nodes)
        await (await nodes.client(1)).create_topic("u", 1)
        if (await nodes.leaders("u"))[0] != 2:
            assert await move(nodes, "u", {0: 2}) == [0]
            await until(lambda: all(leads(each.node, "u", 0, 2) for each in nodes.running.values()))
        disk = SlowDisk(nodes, 2, "u-0", monkeypatch)
        request = produce_request("t", batch_of(b"v"))
        request.topic_data.append(produce_request("u", batch_of(b"w")).topic_data[0])
        client = await nodes.client(2)
        await client.send(request, 9)
        await trio.to_thread.run_sync(disk.waits.wait)
        await until(lambda: nodes[2].node.vnodes["t", 0].high_watermark == 1)
        await moved(nodes, 3)
        disk.goes_on.set()
        answers = (await client.receive()).responses
        assert [each.partition_responses[0].error_code for each in answers] == [0, 0]


async def test_a_batch_that_is_flushed_while_its_partition_goes_is_asked_for_again(tmp_path: Path) -> None:
    """Whichever answer the batch gets, its record is there once."""
    async with several(tmp_path) as nodes:
        await with_topic(nodes)
        producer = await (await nodes.client(1)).ask(InitProducerIdRequest(transactional_id=None))
        settings = {"producer_id": producer.producer_id, "producer_epoch": 0}
        leader = 2
        for sequence in range(20):
            target = 5 - leader
            data = batch_of(b"v", base_sequence=sequence, **settings)
            client = await nodes.client(leader)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(moved, nodes, target)
                await client.send(produce_request("t", data), 9)
                await client.receive()
            answer = await (await nodes.client(target)).produce("t", data)
            assert (answer.error_code, answer.base_offset) == (0, sequence)
            leader = target
        nodes.no_errors()
