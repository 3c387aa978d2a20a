"""Broken, hostile and careless clients: each gets the right error or loses its own connection, with no other effect."""

from __future__ import annotations

import contextlib
import gc
import random
import struct
import sys
import weakref

import pytest
import trio
import trio.testing

from barnabas.broker.apis.api_versions import TELEMETRY
from barnabas.broker.net.answers import MAX_BACKLOG_BYTES
from barnabas.broker.net.frame_timer import Allowance
from barnabas.broker.net.framing import RECEIVE_BYTES
from barnabas.broker.registry import APIS
from barnabas.broker.tests.client import Client, batch_of, connect, fetch_request, frame_of, produce_request
from barnabas.broker.tests.conftest import Running, Start, until
from barnabas.wire.codegen import message_codec
from barnabas.wire.compression import CompressionType
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import write_request_header
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


async def still_serves(broker: Running, topic: str = "well") -> None:
    """Check that another client can write and read."""
    async with await broker.client() as client:
        if topic not in broker.node.metadata.topics:
            await client.create_topic(topic)
        written = await client.produce(topic, batch_of(b"fine"))
        assert written.error_code == 0
        assert (await client.fetch(topic, written.base_offset)).records
    assert " error " not in broker.log


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(struct.pack(">i", -1), id="negative length"),
        pytest.param(struct.pack(">i", -(2**31)), id="most negative length"),
        pytest.param(struct.pack(">i", 104857601), id="above socket.request.max.bytes"),
        pytest.param(struct.pack(">i", 0), id="empty frame"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="http"),
        pytest.param(struct.pack(">ihhih", 10, 9999, 0, 1, -1), id="unknown key"),
        pytest.param(struct.pack(">ihhih", 10, 3, 99, 1, -1), id="unknown version"),
        pytest.param(struct.pack(">ihhih", 10, 3, -5, 1, -1), id="negative version"),
        pytest.param(struct.pack(">ihhih", 10, 0, 2, 1, -1), id="produce 2, advertised but not served"),
        pytest.param(struct.pack(">ihhih", 10, 3, 1, 1, 32000), id="client id beyond the frame"),
        pytest.param(struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1), id="array of two thousand million"),
        pytest.param(struct.pack(">ihhihi", 14, 3, 1, 1, -1, -7), id="array of minus seven"),
    ],
)
async def test_what_is_no_request_ends_its_connection_only(start: Start, sent: bytes) -> None:
    async with start() as broker:
        async with await broker.client() as client:
            await client.send_bytes(sent)
            assert await client.is_closed()
        await still_serves(broker)


async def test_random_bytes_end_their_connection_only(start: Start) -> None:
    dice = random.Random(5)
    async with start() as broker:
        for size in (3, 4, 5, 13, 100, 5000, 70_000):
            async with await broker.client() as client:
                await client.send_bytes(b"\x7f" + dice.randbytes(size))
                assert await client.is_closed()
        await still_serves(broker)


@pytest.mark.parametrize("cut", [1, 3, 4, 9, 20])
async def test_a_request_cut_off_by_its_sender_is_not_handled(start: Start, cut: int) -> None:
    async with start() as broker:
        async with await broker.client() as client:
            await client.create_topic("well")
            await client.send_bytes(frame_of(produce_request("well", batch_of(b"x")), 9)[:-cut])
        await still_serves(broker)
        async with await broker.client() as client:
            assert (await client.produce("well", batch_of(b"y"))).base_offset == 1


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
async def test_an_unknown_api_versions_is_answered_in_version_0(start: Start, version: int) -> None:
    async with start() as broker, await broker.client() as client:
        head = write_request_header(18, version, 7, "new", True)
        await client.send_bytes(struct.pack(">i", len(head)) + head)
        data = await client.receive_frame()
        assert data[:4] == struct.pack(">i", 7)
        answer = message_codec(ApiVersionsResponse, 0).parse(data[4:])
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [(18, 0, 4)]
        good = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        assert {k.api_key for k in (await client.ask(good, 4)).api_keys} == {
            k for k, each in APIS.items() if not each.for_nodes
        } - set(TELEMETRY)


async def test_what_came_before_a_broken_request_has_its_answer(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        good = frame_of(MetadataRequest(topics=[]), 9)
        await client.send_bytes(good + good + struct.pack(">i", -1))
        assert await client.receive_frame() == await client.receive_frame()
        assert await client.is_closed()


def with_bytes(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def sealed(data: bytes, at: int, new: bytes) -> bytes:
    """The batch with some bytes replaced, and with the CRC that fits them."""
    from barnabas.wire.batch import seal

    out = bytearray(with_bytes(data, at, new))
    seal(out)
    return bytes(out)


GOOD = batch_of(b"a", b"b")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(with_bytes(GOOD, len(GOOD) - 1, b"\xff"), ErrorCode.CORRUPT_MESSAGE, id="crc"),
        pytest.param(with_bytes(GOOD, 8, struct.pack(">i", 10**6)), ErrorCode.CORRUPT_MESSAGE, id="length too large"),
        pytest.param(with_bytes(GOOD, 8, struct.pack(">i", -1)), ErrorCode.CORRUPT_MESSAGE, id="length negative"),
        pytest.param(GOOD[:40], ErrorCode.CORRUPT_MESSAGE, id="half a header"),
        pytest.param(b"", ErrorCode.CORRUPT_MESSAGE, id="nothing"),
        pytest.param(None, ErrorCode.INVALID_RECORD, id="null"),
        pytest.param(sealed(GOOD, 57, struct.pack(">i", 3)), ErrorCode.INVALID_RECORD, id="record count"),
        pytest.param(sealed(GOOD, 57, struct.pack(">i", -1)), ErrorCode.INVALID_RECORD, id="negative count"),
        pytest.param(sealed(GOOD, 23, struct.pack(">i", 5)), ErrorCode.INVALID_RECORD, id="offset delta"),
        pytest.param(sealed(GOOD, 22, b"\x07"), ErrorCode.INVALID_RECORD, id="unknown codec"),
        pytest.param(sealed(GOOD, 22, b"\x20"), ErrorCode.INVALID_RECORD, id="control batch"),
        pytest.param(with_bytes(GOOD, 16, b"\x01"), ErrorCode.INVALID_RECORD, id="magic 1"),
        pytest.param(with_bytes(GOOD, 16, b"\x00"), ErrorCode.INVALID_RECORD, id="magic 0"),
        pytest.param(GOOD + GOOD, ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(batch_of(b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE, id="too large"),
        pytest.param(
            batch_of(b"x", is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            id="transactional without an id",
        ),
    ],
)
async def test_a_bad_batch_is_refused_and_nothing_is_stored(start: Start, data: bytes | None, code: ErrorCode) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t")
        answer = await client.produce("t", data)
        assert (answer.error_code, answer.base_offset) == (code, -1)
        assert (await client.produce("t", GOOD)).base_offset == 0
        stored = (await client.fetch("t")).records
        assert stored[16:] == GOOD[16:]


async def test_zstd_needs_produce_7(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t")
        data = batch_of(b"x", compression=CompressionType.ZSTD)
        assert (await client.produce("t", data, version=6)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (await client.produce("t", data, version=7)).error_code == 0


@pytest.mark.parametrize(
    "codec_number", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]
)
async def test_a_compression_bomb_is_refused_where_it_must_be_looked_into(start: Start, codec_number: int) -> None:
    bomb = batch_of(bytes(40 << 20), compression=codec_number)
    async with start(message_max_bytes="3000000") as broker, await broker.client() as client:
        await client.create_topic("compacted", cleanup_policy="compact")
        assert (await client.produce("compacted", bomb)).error_code == ErrorCode.INVALID_RECORD
        assert (await client.produce("compacted", batch_of(b"x", compression=codec_number))).base_offset == 0
        await still_serves(broker)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "ü", "x" * 250, "../../etc", "a\0b", "__cluster_metadata"]
)
async def test_a_bad_topic_name_makes_no_topic(start: Start, name: str) -> None:
    async with start() as broker, await broker.client() as client:
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        assert (await client.ask(wanted, 9)).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        with pytest.raises(AssertionError, match=str(int(ErrorCode.INVALID_TOPIC_EXCEPTION))):
            await client.create_topic(name)
        assert not broker.node.metadata.topics


@pytest.mark.parametrize("topic", ["__cluster_metadata", "__consumer_offsets"])
async def test_the_brokers_own_logs_are_closed_to_clients(start: Start, topic: str) -> None:
    async with start() as broker, await broker.client() as client:
        await client.ask(FindCoordinatorRequest(key="g"), 3)  # makes __consumer_offsets
        assert (await client.produce(topic, GOOD)).error_code in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
        end = broker.node.vnodes[topic, 0].log_end_offset
        parts = [DeleteRecordsPartition(partition_index=0, offset=-1)]
        answer = await client.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=parts)]))
        assert answer.topics[0].partitions[0].error_code != 0
        vnode = broker.node.vnodes[topic, 0]
        assert (vnode.log_start_offset, vnode.log_end_offset) == (0, end)


# --- slow and greedy clients ------------------------------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames must arrive within a short time."""
    monkeypatch.setattr("barnabas.broker.net.frame_timer.USUAL", Allowance(0.3, 1 << 20))
    monkeypatch.setattr("barnabas.broker.net.frame_timer.WAITED_FOR", Allowance(0.1, 1 << 30))
    monkeypatch.setattr("barnabas.broker.net.connections.PACE_CHECK_SECONDS", 0.02)


@pytest.mark.parametrize(
    "beginning", [b"\0", struct.pack(">i", 100) + b"\0\3", struct.pack(">i", 90 << 20) + bytes(999)]
)
@pytest.mark.usefixtures("hasty")
async def test_a_request_that_never_ends_is_given_up(start: Start, beginning: bytes) -> None:
    async with start() as broker:
        async with await broker.client() as slow:
            await slow.send_bytes(beginning)
            assert await slow.is_closed()
        await still_serves(broker)
        memory = broker.node.connections.memory
        assert memory.large.free == memory.large.total
        assert "too slowly" in broker.log


@pytest.mark.usefixtures("hasty")
async def test_a_connection_between_requests_may_be_idle(start: Start) -> None:
    async with start() as broker, await broker.client() as idle, await broker.client() as slow:
        await idle.ask(MetadataRequest(topics=[]))
        await slow.send_bytes(b"\0")
        assert await slow.is_closed()  # so more time has passed than a frame may take
        assert await idle.ask(MetadataRequest(topics=[]))


@pytest.mark.usefixtures("hasty")
async def test_a_frame_that_stalls_gives_its_memory_to_those_that_wait(start: Start) -> None:
    async with start(queued_max_request_bytes="1000000", message_max_bytes="900000") as broker:
        async with await broker.client() as client:
            await client.create_topic("t")
        hoarders = [await broker.client() for _ in range(5)]
        for hoarder in hoarders:
            await hoarder.send_bytes(struct.pack(">i", 90 << 20) + bytes(150_000))
        async with await broker.client() as client:
            assert (await client.produce("t", batch_of(random.Random(1).randbytes(800_000)))).error_code == 0
        for hoarder in hoarders:
            await hoarder.stream.aclose()


async def test_declared_sizes_cost_no_memory_but_what_has_come(start: Start) -> None:
    async with start(queued_max_request_bytes="300000000") as broker:
        clients = [await broker.client() for _ in range(40)]
        for client in clients:
            await client.send_bytes(struct.pack(">i", 100 << 20) + bytes(70_000))
        await still_serves(broker)
        await until(lambda: sum(c.held_bytes for c in broker.node.connections) == 40 * 70_000)
        memory = broker.node.connections.memory.large
        assert memory.total - memory.free == 40 * 70_000
        for client in clients:
            await client.stream.aclose()
        await still_serves(broker)


async def test_one_byte_at_a_time_is_served(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        request = frame_of(MetadataRequest(topics=[]), 9)
        for at in range(len(request)):
            await client.send_bytes(request[at : at + 1])
        assert await client.receive_frame()


async def test_a_client_that_reads_no_answers_has_a_bounded_backlog(start: Start) -> None:
    async with start() as serving:
        async with await serving.client() as client:
            for number in range(3):
                await client.create_topic(f"t{number}", 100)
        deaf = await serving.client()
        request = frame_of(MetadataRequest(topics=None), 9)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deaf.send_bytes, request * 20_000)
            with trio.fail_after(60):
                while not (full := [c for c in serving.node.connections if c.unsent_bytes > MAX_BACKLOG_BYTES]):
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        (connection,) = full
        assert connection.unsent_bytes < 3 << 20
        assert connection.unfinished_bytes <= RECEIVE_BYTES
        await still_serves(serving)
        await deaf.stream.aclose()


async def test_answers_kept_back_by_the_backlog_all_come_in_order(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t", 200)
        count = 1500
        frames = b"".join(frame_of(MetadataRequest(topics=None), 9, number) for number in range(count))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send_bytes, frames)
            for number in range(count):
                assert (await client.receive_frame())[:4] == struct.pack(">i", number)


@pytest.mark.parametrize("connections_max_idle_ms", ["100"])
async def test_a_deaf_client_is_closed_in_the_end(start: Start, connections_max_idle_ms: str) -> None:
    async with start(connections_max_idle_ms=connections_max_idle_ms) as broker:
        deaf = await broker.client()
        await deaf.send_bytes(frame_of(MetadataRequest(topics=[]), 9))
        with trio.fail_after(60):
            while broker.node.connections:
                await trio.lowlevel.checkpoint()
        await deaf.stream.aclose()


async def test_small_elements_do_not_grow_into_large_memory(start: Start) -> None:
    many = b"\0\0" * 400_000
    head = write_request_header(3, 8, 1, None, False)
    body = head + struct.pack(">i", 400_000) + many + b"\0\0\0"
    async with start() as broker:
        async with await broker.client() as client:
            await client.send_bytes(struct.pack(">i", len(body)) + body)
            assert await client.is_closed()
        assert "more array elements" in broker.log
        await still_serves(broker)


async def test_only_produce_may_be_huge(start: Start) -> None:
    body = write_request_header(11, 5, 1, None, False) + bytes(20 << 20)
    async with start() as broker:
        async with await broker.client() as client:
            with contextlib.suppress(trio.BrokenResourceError):
                await client.send_bytes(struct.pack(">i", len(body)) + body)
            assert await client.is_closed()
        await still_serves(broker)


async def test_naming_a_thing_many_times_does_not_multiply_the_answer(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t", 50)
        topics = [MetadataRequestTopic(name="t")] * 1000
        assert len((await client.ask(MetadataRequest(topics=topics), 9)).topics) == 1
        resources = [DescribeConfigsResource(resource_type=2, resource_name="t")] * 1000
        assert len((await client.ask(DescribeConfigsRequest(resources=resources))).results) == 1
        asked = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)])] * 3
        found = await client.ask(ListOffsetsRequest(topics=asked), 5)
        assert [t.partitions[0].error_code for t in found.topics] == [0, *[ErrorCode.INVALID_REQUEST] * 2]


async def test_a_long_text_in_an_error_message_still_has_an_answer(start: Start) -> None:
    from barnabas.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

    async with start() as broker, await broker.client() as client:
        config = CreatableTopicConfig(name="c" * 32_000, value="v" * 32_000)
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[config])
        answer = await client.ask(CreateTopicsRequest(topics=[topic]), 4)
        assert answer.topics[0].error_code == ErrorCode.INVALID_CONFIG


async def test_connections_beyond_the_limit_are_closed_and_places_come_free(start: Start) -> None:
    async with start(max_connections="3") as broker:
        held: list[Client] = [await broker.client() for _ in range(3)]
        for client in held:
            await client.ask(MetadataRequest(topics=[]))
        async with await connect(broker.port) as fourth:
            assert await fourth.is_closed()
        await held.pop().stream.aclose()
        with trio.fail_after(60):
            while len(broker.node.connections) > 2:
                await trio.lowlevel.checkpoint()
        async with await broker.client() as client:
            assert await client.ask(MetadataRequest(topics=[]))
        for client in held:
            await client.stream.aclose()


@pytest.mark.skipif(sys.implementation.name == "pypy", reason="PyPy frees what nothing refers to when it collects")
@pytest.mark.parametrize("left_behind", ["nothing", "a long poll", "a large frame", "answers that are not read"])
async def test_a_connection_that_ends_is_freed_at_once(start: Start, left_behind: str) -> None:
    gc.disable()
    try:
        async with start() as broker:
            client = await broker.client()
            await client.create_topic("t")
            (connection,) = broker.node.connections
            alive = weakref.ref(connection)
            del connection
            if left_behind == "a long poll":
                await client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
            elif left_behind == "a large frame":
                await client.send_bytes(struct.pack(">i", 1 << 20) + bytes(100_000))
            elif left_behind == "answers that are not read":
                await client.produce("t", batch_of(bytes(500_000)))
                for _ in range(40):
                    await client.send(fetch_request("t", 0, max_wait_ms=0), 12)
            await trio.testing.wait_all_tasks_blocked(0.01)
            await client.stream.aclose()
            while broker.node.connections:
                await trio.testing.wait_all_tasks_blocked()
            await trio.testing.wait_all_tasks_blocked()
            assert alive() is None
    finally:
        gc.enable()


async def test_a_fault_of_ours_in_a_long_poll_ends_that_connection_only(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    async with start() as broker, await broker.client() as producer, await broker.client() as consumer:
        await producer.create_topic("t")
        await consumer.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        await trio.testing.wait_all_tasks_blocked(0.01)
        monkeypatch.setattr("barnabas.broker.apis.fetch.Reading.read_again", fault)
        assert (await producer.produce("t", batch_of(b"x"))).error_code == 0
        assert await consumer.is_closed()
        assert "a fault of ours" in broker.log
        assert (await producer.fetch("t")).records
