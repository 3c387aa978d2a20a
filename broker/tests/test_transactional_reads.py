"""Fetch, ListOffsets and DescribeProducers for partitions with transactions, request by request."""

from __future__ import annotations

import pytest

from barnabas.broker.tests.conftest import Start
from barnabas.storage.vnode import Origin
from barnabas.wire.batch import Marker, Record, build_batch, iter_batches
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.wire.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

NOW = 1_700_000_000_000


def batch_of(producer_id: int, time: int) -> bytes:
    return build_batch(
        [Record(b"k", b"v", NOW + time)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=-1,
        is_transactional=True,
    )


async def test_a_read_committed_fetch_lists_what_was_aborted_and_ends_before_what_is_open(start: Start) -> None:
    async with start() as running, await running.client() as client:
        await client.create_topic("t")
        vnode = running.node.vnodes["t", 0]

        def write(producer_id: int, time: int) -> None:
            vnode.append(batch_of(producer_id, time), now_ms=NOW, origin=Origin.COORDINATOR)

        write(1, 0)
        write(2, 1)
        vnode.end_transaction(Marker(1, 0, False, 0), new_epoch=False, now_ms=NOW + 2)
        write(3, 3)
        vnode.end_transaction(Marker(2, 0, True, 0), new_epoch=False, now_ms=NOW + 4)
        vnode.flush()

        async def fetch(committed: bool, offset: int = 0, max_bytes: int = 1 << 20) -> tuple[object, ...]:
            part = FetchPartition(0, fetch_offset=offset, partition_max_bytes=max_bytes)
            topics = [FetchTopic(topic="t", partitions=[part])]
            request = FetchRequest(isolation_level=int(committed), topics=topics, max_wait_ms=0)
            found = (await client.ask(request, version=12)).responses[0].partitions[0]
            return found.last_stable_offset, found.high_watermark, len(found.records), found.aborted_transactions

        everything = vnode.size_bytes
        below = len(vnode.read(0, 1 << 20, max_offset=3).slice or b"")
        assert await fetch(True) == (3, 5, below, [AbortedTransaction(1, 0)])
        assert await fetch(False) == (3, 5, everything, None)
        assert await fetch(True, offset=3) == (3, 5, 0, [])
        small = await fetch(True, offset=1, max_bytes=1)
        assert small[3] == [AbortedTransaction(1, 0)]

        async def latest(level: int, time: int) -> int:
            part = ListOffsetsPartition(partition_index=0, timestamp=time)
            topic = ListOffsetsTopic(name="t", partitions=[part])
            answer = await client.ask(ListOffsetsRequest(isolation_level=level, topics=[topic]), version=7)
            offset: int = answer.topics[0].partitions[0].offset
            return offset

        assert [await latest(0, -1), await latest(1, -1)] == [5, 3]
        assert [await latest(0, NOW + 3), await latest(1, NOW + 3)] == [3, -1]
        assert [await latest(0, NOW + 1), await latest(1, NOW + 1)] == [1, 1]
        assert await latest(1, -2) == 0


@pytest.mark.parametrize("partitions", [1, 3])
async def test_an_answer_ends_a_bounded_number_of_aborted_transactions(
    start: Start, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """The next answers have the rest. Every transaction is listed in the answer that has its batches."""
    monkeypatch.setattr("barnabas.broker.apis.fetch.MOST_ABORTED", 4)
    async with start() as running, await running.client() as client:
        await client.create_topic("t", partitions)
        told: dict[int, list[tuple[int, int]]] = {index: [] for index in range(partitions)}
        for index in range(partitions):
            vnode = running.node.vnodes["t", index]
            vnode.append(batch_of(99, 0), now_ms=NOW, origin=Origin.COORDINATOR)  # open during all the others
            for producer_id in range(1, 24):
                vnode.append(batch_of(producer_id, producer_id), now_ms=NOW, origin=Origin.COORDINATOR)
                vnode.end_transaction(Marker(producer_id, 0, False, 0), new_epoch=False, now_ms=NOW)
            vnode.end_transaction(Marker(99, 0, False, 0), new_epoch=False, now_ms=NOW)
            vnode.flush()
        at = dict.fromkeys(range(partitions), 0)
        while any(offset < 48 for offset in at.values()):
            parts = [FetchPartition(index, fetch_offset=offset) for index, offset in at.items() if offset < 48]
            request = FetchRequest(isolation_level=1, topics=[FetchTopic(topic="t", partitions=parts)], max_wait_ms=0)
            answer = (await client.ask(request, version=12)).responses[0].partitions
            found = [part for part in answer if part.records]
            assert found
            assert sum(len(part.aborted_transactions or ()) for part in answer) <= 4 + 2
            for part in found:
                for header, _ in iter_batches(bytes(part.records)):
                    at[part.partition_index] = header.last_offset + 1
                known = told[part.partition_index]
                known += {(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()} - {*known}
        everything = [(99, 0), *((number, 2 * number - 1) for number in range(1, 24))]
        assert [sorted(known) for known in told.values()] == [sorted(everything)] * partitions


async def test_producers_are_described_with_their_open_transactions(start: Start) -> None:
    async with start() as running, await running.client() as client:
        await client.create_topic("t")
        vnode = running.node.vnodes["t", 0]
        vnode.append(batch_of(7, 0), now_ms=NOW, origin=Origin.COORDINATOR)
        request = DescribeProducersRequest(topics=[TopicRequest("t", [0, 0, 5]), TopicRequest("none", [0])])
        answer = await client.ask(request, version=0)
        known, twice, absent = answer.topics[0].partitions
        (found,) = known.active_producers
        assert (found.producer_id, found.producer_epoch, found.current_txn_start_offset) == (7, 0, 0)
        assert (found.last_sequence, found.last_timestamp, found.coordinator_epoch) == (-1, NOW, -1)
        assert twice.error_code == ErrorCode.INVALID_REQUEST
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [absent.error_code, answer.topics[1].partitions[0].error_code] == [unknown, unknown]
