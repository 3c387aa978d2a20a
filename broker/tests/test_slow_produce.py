"""Batches whose check takes long: in a thread, in order, whatever happens meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio

from barnabas.broker.apis import produce as api
from barnabas.broker.tests.client import Client, batch_of, frame_of, produce_request
from barnabas.broker.tests.conftest import Start
from barnabas.broker.tests.test_queries import BY_HAND, alter, driver_of
from barnabas.storage.validation import LIGHT_DECOMPRESSED
from barnabas.wire.batch import Record, build_batch, iter_records
from barnabas.wire.compression import CompressionType
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

HEAVY = batch_of(bytes(LIGHT_DECOMPRESSED), compression=CompressionType.ZSTD)
# Larger than the shared buffer of all connections, so it gets a frame of its own.
LARGE = build_batch([Record(b"k", bytes(range(256)) * 9000, 1_700_000_000_000)])
BOMB = batch_of(bytes(100 << 20), compression=CompressionType.ZSTD)


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[trio.Event, threading.Event, set[int]]]:
    """Let the checks in threads wait. Yields (one has begun, they may continue, the threads)."""
    begun, go_on, threads = trio.Event(), threading.Event(), set[int]()
    token = trio.lowlevel.current_trio_token()
    look = api.Producing.look

    def waiting(self: api.Producing) -> Any:
        threads.add(threading.get_ident())
        token.run_sync_soon(begun.set)
        assert go_on.wait(20)
        return look(self)

    monkeypatch.setattr(api.Producing, "look", waiting)
    try:
        yield begun, go_on, threads
    finally:
        go_on.set()


async def until_begun(begun: trio.Event) -> None:
    with trio.fail_after(60):
        await begun.wait()


async def produced(client: Client, *batches: bytes, topic: str = "t") -> None:
    for data in batches:
        await client.send(produce_request(topic, data), 9)


async def offsets(client: Client, count: int) -> list[tuple[int, int]]:
    return [
        (part.error_code, part.base_offset)
        for _ in range(count)
        for part in (await client.receive()).responses[0].partition_responses
    ]


@pytest.mark.parametrize("heavy", [HEAVY, LARGE], ids=["compressed", "large"])
async def test_what_follows_is_appended_after_it_and_others_do_not_wait(
    heavy: bytes, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start() as broker, await broker.client() as client, await broker.client() as other:
        await client.create_topic("t", max_message_bytes="10000000")
        with held(monkeypatch) as (begun, go_on, threads):
            await produced(client, batch_of(b"first"), heavy, batch_of(b"last"))
            await until_begun(begun)
            assert (await other.produce("t", batch_of(b"of another"))).base_offset == 1
            go_on.set()
            assert await offsets(client, 3) == [(0, 0), (0, 2), (0, 3)]
        assert threads
        assert threading.get_ident() not in threads
        records = (await other.fetch("t", 2, max_bytes=10 << 20, partition_max_bytes=10 << 20)).records
        assert next(iter_records(records)) == next(iter_records(b"\0" * 7 + b"\2" + heavy[8:]))


async def test_a_look_behind_it_sees_it(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t")
        parts = [ListOffsetsPartition(timestamp=-1)]
        await client.send(produce_request("t", HEAVY), 9)
        await client.send(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic("t", parts)]), 7)
        await client.receive()
        assert (await client.receive()).topics[0].partitions[0].offset == 1


async def test_a_client_that_leaves_has_sent_its_batch_all_the_same(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start() as broker, await broker.client() as other:
        await other.create_topic("t", max_message_bytes="10000000")
        free = broker.node.connections.memory.large.free
        with held(monkeypatch) as (begun, go_on, _):
            async with await broker.client() as client:
                await produced(client, LARGE)
                await until_begun(begun)
            vnode = broker.node.vnodes["t", 0]
            with trio.fail_after(60):
                while len(broker.node.connections) > 1:
                    await trio.lowlevel.checkpoint()
                go_on.set()
                while not vnode.high_watermark:
                    await trio.lowlevel.checkpoint()
        assert broker.node.connections.memory.large.free == free


async def test_a_topic_that_is_deleted_meanwhile_takes_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start() as broker, await broker.client() as client, await broker.client() as other:
        await client.create_topic("t")
        with held(monkeypatch) as (begun, go_on, _):
            await produced(client, HEAVY)
            await until_begun(begun)
            await other.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
            await other.create_topic("t")
            go_on.set()
            assert await offsets(client, 1) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
        assert broker.node.vnodes["t", 0].log_end_offset == 0, "the new topic inherits nothing"


async def test_a_bomb_is_refused(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t")
        answer = await client.produce("t", BOMB)
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert "decompresses to more than" in answer.error_message


async def test_a_bomb_with_acks_0_closes_its_connection(start: Start) -> None:
    async with start() as broker, await broker.client() as client, await broker.client() as other:
        await other.create_topic("t")
        await client.send_bytes(frame_of(produce_request("t", BOMB, acks=0), 9))
        assert await client.is_closed()
        assert (await other.produce("t", batch_of(b"v"))).base_offset == 0


async def test_a_request_of_many_batches_gives_way_and_answers_each(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "HOLD_SECONDS", 0.0)
    count = 300
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t", count)
        garbage = bytes(100)
        parts = [
            PartitionProduceData(index=index, records=(HEAVY, batch_of(b"v"), garbage)[index % 3])
            for index in range(count)
        ]
        unknown = TopicProduceData("nosuch", partition_data=[PartitionProduceData(index=1, records=batch_of(b"v"))])
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData("t", partition_data=parts), unknown]
        )
        await client.send(request, 9)
        await client.send(request, 9)
        for turn in range(2):
            told, nowhere = (await client.receive()).responses
            assert [part.index for part in told.partition_responses] == list(range(count))
            for part in told.partition_responses:
                refused = part.index % 3 == 2
                assert (part.error_code, part.base_offset) == (
                    (ErrorCode.INVALID_RECORD, -1) if refused else (0, turn)
                ), part
            assert nowhere.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_becomes_a_query_topic_meanwhile_takes_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        start(**BY_HAND) as running,
        driver_of(running),
        await running.client() as client,
        await running.client() as other,
    ):
        await client.create_topic("src")
        await client.create_topic("t")
        with held(monkeypatch) as (begun, go_on, _):
            await produced(client, HEAVY)
            await until_begun(begun)
            assert (await alter(other, "t", barnabas_query="SELECT * FROM src")).error_code == 0
            go_on.set()
        assert await offsets(client, 1) == [(ErrorCode.INVALID_TOPIC_EXCEPTION, -1)]
        assert running.node.vnodes["t", 0].log_end_offset == 0
