"""Client quotas in force: throttle times, and connections that are not read meanwhile.

The clock of these tests stands still unless a test moves it, so throttle times can be calculated exactly.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.broker.net.connection import Connection
from barnabas.broker.quotas import sensors
from barnabas.broker.security.principals import ANONYMOUS, DRIVER
from barnabas.broker.settings.quotas import CONSUMER, MUTATIONS, PRODUCER, REQUESTS
from barnabas.broker.tests.client import Client, batch_of, connect, fetch_request, frame_of, produce_request
from barnabas.broker.tests.conftest import Running, Start
from barnabas.broker.tests.sasl_client import log_in_plain
from barnabas.broker.tests.test_login import SETTINGS
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.fetch import FetchRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.types import replace

KILOBYTE = 1000
TEST: Mapping[str, str | None] = {"client-id": "test"}


async def happens(condition: Callable[[], bool]) -> None:
    """Return when the condition holds, on a clock that stands still."""
    while not condition():
        await trio.lowlevel.checkpoint()


async def limit(client: Client, entity: Mapping[str, str | None], **values: float | None) -> None:
    """Set quotas; None removes one."""
    ops = [OpData(key, value or 0.0, value is None) for key, value in values.items()]
    answer = await client.ask(
        AlterClientQuotasRequest([EntryData([EntityData(*each) for each in entity.items()], ops)])
    )
    assert answer.entries[0].error_code == 0, answer


async def produce(client: Client, size: int = KILOBYTE, **settings: Any) -> int:
    """Send one batch. Returns the throttle time in the answer."""
    answer = await client.ask(produce_request("t", batch_of(bytes(size)), **settings), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    ms: int = answer.throttle_time_ms
    return ms


def muted(broker: Running) -> list[Connection]:
    return [each for each in broker.node.connections if each.is_muted]


def request_size(size: int = KILOBYTE) -> int:
    return len(frame_of(produce_request("t", batch_of(bytes(size))), 9)) - 4


@asynccontextmanager
async def limited(
    start: Start, key: str, value: float, entity: Mapping[str, str | None] = TEST
) -> AsyncIterator[tuple[Running, Client, Client]]:
    """A broker with a topic and a quota for the client id "test", a client with this id, and one with another."""
    async with start() as broker, await broker.client() as client, await broker.client() as other:
        other.client_id = "other"
        await other.create_topic("t")
        await limit(other, entity, **{key: value})
        yield broker, client, other


# --- bytes produced ---------------------------------------------------------------------------------------------------


async def test_who_produces_too_much_is_told_and_not_read(start: Start, mock_clock: MockClock) -> None:
    rate = request_size() // 5 + 1
    async with limited(start, PRODUCER, rate) as (broker, client, other):
        assert await produce(client) == 0
        assert await produce(client) == 0
        ms = await produce(client)
        assert ms == round(1000 * (3 * request_size() / rate - 10))
        await happens(lambda: len(muted(broker)) == 1)
        await client.send(ApiVersionsRequest("t", "1"))
        assert await produce(other) == 0
        assert await produce(other) == 0
        assert muted(broker)
        mock_clock.jump(ms / 1000)
        assert (await client.receive()).error_code == 0
        assert not muted(broker)


async def test_connections_of_one_client_are_throttled_together(start: Start, mock_clock: MockClock) -> None:
    async with limited(start, PRODUCER, 100) as (broker, client, other):
        first = await produce(client)
        async with await broker.client() as second:
            assert await produce(second) > first + 10_000 > 10_000
        assert await produce(other) == 0


async def test_requests_that_were_sent_ahead_wait(start: Start, mock_clock: MockClock) -> None:
    """Ten at once: the first is handled, and each later one after the throttle time of the one before."""
    async with limited(start, PRODUCER, 100) as (broker, client, _):
        frames = [frame_of(produce_request("t", batch_of(bytes(5000))), 9, number) for number in range(1, 4)]
        await client.send_bytes(b"".join(frames))
        for number in range(3):
            await client.receive_frame()
            await happens(lambda: len(muted(broker)) == 1)
            assert broker.node.vnodes["t", 0].log_end_offset == number + 1
            mock_clock.jump(1000.0)


async def test_without_an_answer_there_is_a_pause_all_the_same(start: Start, mock_clock: MockClock) -> None:
    async with limited(start, PRODUCER, 100) as (broker, client, _):
        for _ in range(2):
            await client.send_bytes(frame_of(produce_request("t", batch_of(bytes(5000)), acks=0), 9))
        await happens(lambda: len(muted(broker)) == 1)
        assert broker.node.vnodes["t", 0].log_end_offset == 1
        mock_clock.jump(1000.0)
        await happens(lambda: broker.node.vnodes["t", 0].log_end_offset == 2)


async def test_who_has_many_answers_to_come_when_the_time_is_over_is_read_again(
    start: Start, mock_clock: MockClock
) -> None:
    async with limited(start, PRODUCER, 100) as (broker, client, other):
        await other.create_topic("u")
        for _ in range(60):
            await client.send(fetch_request("u", max_wait_ms=600_000, min_bytes=1), 12)
        await client.send(produce_request("t", batch_of(bytes(5000))), 9)
        await happens(lambda: len(muted(broker)) == 1)
        await client.send(ApiVersionsRequest("t", "1"))
        mock_clock.jump(100.0)
        await trio.testing.wait_all_tasks_blocked()
        assert (await other.ask(produce_request("u", batch_of(b"v")), 9)).responses
        for _ in range(61):
            await client.receive()
        assert (await client.receive()).api_keys


async def test_a_large_request_behind_a_throttled_one_holds_no_memory(start: Start, mock_clock: MockClock) -> None:
    async with limited(start, PRODUCER, 100) as (broker, client, _):
        large = frame_of(produce_request("t", batch_of(bytes(900_000))), 9, 2)
        await client.send_bytes(frame_of(produce_request("t", batch_of(bytes(5000))), 9, 1) + large[:60_000])
        await happens(lambda: len(muted(broker)) == 1)
        assert muted(broker)[0].held_bytes == 0
        assert muted(broker)[0].unfinished_bytes <= 256 << 10
        mock_clock.jump(1000.0)
        await client.receive_frame()
        await client.send_bytes(large[60_000:])
        await client.receive_frame()
        assert broker.node.vnodes["t", 0].log_end_offset == 2


async def test_who_is_throttled_for_long_is_not_idle(start: Start, mock_clock: MockClock) -> None:
    async with limited(start, PRODUCER, 1) as (broker, client, other):
        ms = await produce(client, 5000)
        await happens(lambda: len(muted(broker)) == 1)
        for _ in range(4):  # the other client is closed as idle, so the broker has checked
            mock_clock.jump(400.0)
            await trio.testing.wait_all_tasks_blocked()
        assert await other.is_closed()
        assert len(muted(broker)) == 1
        mock_clock.jump(ms / 1000)
        assert (await client.ask(ApiVersionsRequest("t", "1"))).error_code == 0


async def test_who_leaves_while_it_is_throttled_is_forgotten_as_idle(start: Start, mock_clock: MockClock) -> None:
    async with limited(start, PRODUCER, 1) as (broker, client, _):
        await produce(client, 5000)
        await happens(lambda: len(muted(broker)) == 1)
        await client.stream.aclose()
        for _ in range(4):
            mock_clock.jump(400.0)
            await trio.testing.wait_all_tasks_blocked()
        await happens(lambda: not muted(broker))


# --- bytes fetched ----------------------------------------------------------------------------------------------------


async def test_who_fetches_too_much_gets_nothing_for_a_while(start: Start, mock_clock: MockClock) -> None:
    async with limited(start, CONSUMER, 1000) as (broker, client, other):
        for _ in range(20):
            await produce(other)
        request = fetch_request("t", max_bytes=5000)
        first = await client.ask(request, 12)
        size = len(first.responses[0].partitions[0].records)
        assert (first.throttle_time_ms, size > 3000) == (0, True)
        assert (await client.ask(request, 12)).throttle_time_ms == 0
        third = await client.ask(request, 12)
        assert third.responses == []
        assert third.throttle_time_ms == round(1000 * (3 * size / 1000 - 10))
        await happens(lambda: len(muted(broker)) == 1)
        assert (await other.ask(request, 12)).throttle_time_ms == 0
        mock_clock.jump(11.0)
        assert len((await client.ask(request, 12)).responses[0].partitions[0].records) == size


async def test_an_answer_is_no_larger_than_all_windows_allow(start: Start, mock_clock: MockClock) -> None:
    async with limited(start, CONSUMER, 400) as (_, client, other):
        for _ in range(10):
            await produce(other)
        answer = await client.ask(fetch_request("t", max_bytes=1 << 20), 12)
        assert 2000 < len(answer.responses[0].partitions[0].records) <= 4000


async def test_a_batch_that_is_larger_than_all_windows_allow_is_sent_alone(start: Start, mock_clock: MockClock) -> None:
    async with limited(start, CONSUMER, 10) as (broker, client, other):
        await produce(other)
        answer = await client.ask(fetch_request("t"), 12)
        assert len(answer.responses[0].partitions[0].records) > KILOBYTE
        assert answer.throttle_time_ms > 0
        await happens(lambda: len(muted(broker)) == 1)
        async with await broker.client() as second:
            assert (await second.ask(fetch_request("t"), 12)).responses == []


def in_session(session_id: int, epoch: int) -> FetchRequest:
    return replace(fetch_request("t"), session_id=session_id, session_epoch=epoch)


async def test_a_session_goes_on_after_an_empty_answer(start: Start, mock_clock: MockClock) -> None:
    async with limited(start, CONSUMER, 150) as (broker, client, other):
        await produce(other)
        opened = await client.ask(in_session(0, 0), 12)
        session = opened.session_id
        assert len(opened.responses[0].partitions[0].records) > KILOBYTE
        empty = await client.ask(in_session(session, 1), 12)
        assert (empty.error_code, empty.responses, empty.session_id) == (0, [], session)
        mock_clock.jump(empty.throttle_time_ms / 1000)
        mock_clock.jump(11.0)
        again = await client.ask(in_session(session, 2), 12)
        assert again.responses[0].partitions[0].records
        refused = await client.ask(in_session(0, 0), 12)  # a new session, whose id the client never receives
        assert (refused.session_id, refused.responses, refused.throttle_time_ms > 0) == (0, [], True)
        assert len(broker.node.fetch_sessions) == 1


# --- CPU --------------------------------------------------------------------------------------------------------------


async def test_a_quota_of_cpu_throttles_any_request(start: Start, mock_clock: MockClock) -> None:
    async with limited(start, REQUESTS, 0.0001) as (broker, client, other):
        for _ in range(3):
            answer = await client.ask(MetadataRequest(topics=None))
            assert 0 < answer.throttle_time_ms <= 1000
            await happens(lambda: len(muted(broker)) == 1)
            mock_clock.jump(1.0)
        assert (await other.ask(MetadataRequest(topics=None))).throttle_time_ms == 0


async def test_cpu_of_threads_and_of_coroutines_counts(start: Start, mock_clock: MockClock) -> None:
    """A large request is decoded and encoded in threads; 20,000 names take some milliseconds for each."""
    async with limited(start, REQUESTS, 0.001) as (broker, client, _other):
        small = broker.node.quotas.rates.get("127.0.0.1", (REQUESTS, "", "test"), trio.current_time())
        names = [MetadataRequestTopic(name=f"no such topic {number}") for number in range(20_000)]
        answer = await client.ask(MetadataRequest(topics=names, allow_auto_topic_creation=False))
        assert answer.throttle_time_ms == 1000
        used = small.total(trio.current_time(), broker.node.quotas.windows)
        assert used > 1.0  # in hundredths of a second


async def test_what_brokers_ask_and_what_has_no_answer_is_exempt(start: Start, mock_clock: MockClock) -> None:
    async with limited(start, REQUESTS, 0.0001) as (broker, client, _):
        await client.send_bytes(frame_of(produce_request("t", batch_of(b"v"), acks=0), 9))
        await happens(lambda: broker.node.vnodes["t", 0].log_end_offset == 1)
        assert not muted(broker)


# --- changes of topics ------------------------------------------------------------------------------------------------


def creation(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, partitions, 1) for name in names])


async def test_too_many_changes_of_topics_are_refused(start: Start, mock_clock: MockClock) -> None:
    async with limited(start, MUTATIONS, 1) as (broker, client, other):
        assert [each.error_code for each in (await client.ask(creation("a", partitions=12))).topics] == [0]
        refused = await client.ask(creation("b", "c"))
        assert {each.error_code for each in refused.topics} == {ErrorCode.THROTTLING_QUOTA_EXCEEDED}
        assert refused.throttle_time_ms == 1000
        assert not {"b", "c"} & set(broker.node.metadata.topics)
        await happens(lambda: len(muted(broker)) == 1)
        await client.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="a")]))
        assert (await other.ask(creation("d"))).topics[0].error_code == 0
        mock_clock.jump(1.0)
        gone = await client.receive()
        assert (gone.responses[0].error_code, gone.throttle_time_ms) == (0, 0)
        grow = CreatePartitionsRequest([CreatePartitionsTopic("t", 2, None)], 1000)
        assert (await client.ask(grow)).results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_older_clients_are_throttled_and_not_refused(start: Start, mock_clock: MockClock) -> None:
    async with limited(start, MUTATIONS, 1) as (_broker, client, _):
        first = await client.ask(creation("a", partitions=20), 5)
        assert (first.topics[0].error_code, first.throttle_time_ms) == (0, 9000)
        mock_clock.jump(9.0)
        second = await client.ask(DeleteTopicsRequest(topic_names=["a"]), 4)
        assert (second.responses[0].error_code, second.throttle_time_ms) == (0, 20_000)


async def test_topics_that_are_made_by_asking_for_them_count(start: Start, mock_clock: MockClock) -> None:
    async with limited(start, MUTATIONS, 1) as (_broker, client, _):
        topics = [MetadataRequestTopic(name=f"made {number}".replace(" ", "-")) for number in range(20)]
        answer = await client.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True))
        made = [each for each in answer.topics if each.error_code == 0]
        assert len(made) == 12
        assert {each.error_code for each in answer.topics} == {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert answer.throttle_time_ms == 1000


# --- whose quota, and when --------------------------------------------------------------------------------------------


async def test_a_quota_is_of_the_user_who_has_logged_in(start: Start, mock_clock: MockClock) -> None:
    async with start(more=SETTINGS) as broker, await broker.client() as admin:
        await admin.create_topic("t")
        await limit(admin, {"user": "alice"}, **{PRODUCER: 100})
        async with await connect(broker.port_of("SASL_PLAINTEXT")) as alice:
            await log_in_plain(alice, "alice", "alice-secret")
            assert await produce(alice) > 0
        async with await connect(broker.port_of("SASL_PLAINTEXT")) as alice:
            alice.client_id = "another"
            await log_in_plain(alice, "alice", "alice-secret")
            assert await produce(alice) > 0
        async with await connect(broker.port_of("SASL_PLAINTEXT")) as bob:
            await log_in_plain(bob, "bob", "bob,secret")
            assert await produce(bob) == 0


async def test_the_streams_driver_has_no_quotas(start: Start) -> None:
    async with limited(start, PRODUCER, 100, {"user": None}) as (broker, _, _other):
        quotas = broker.node.quotas
        assert quotas.of(ANONYMOUS, "127.0.0.1", "streams") is not None
        assert quotas.of(DRIVER, "127.0.0.1", "streams") is None


async def test_a_change_holds_at_once_and_after_a_kill(start: Start, mock_clock: MockClock) -> None:
    async with limited(start, PRODUCER, 1_000_000) as (broker, client, other):
        assert await produce(client, 5000) == 0
        await limit(other, TEST, **{PRODUCER: 100})
        assert await produce(client) > 0
        await limit(other, TEST, **{PRODUCER: None})
        mock_clock.jump(100.0)
        assert await produce(client, 5000) == 0
        assert not broker.node.metadata.quotas.limits_clients
        await limit(other, {"client-id": None}, **{PRODUCER: 10})
    async with start() as broker, await broker.client() as client:
        assert broker.node.metadata.quotas.limits_clients
        assert await produce(client) > 0


async def test_who_changes_its_client_id_does_not_escape(
    start: Start, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "MOST_OF_ONE", 5)
    async with limited(start, PRODUCER, 10_000_000, {"client-id": None}) as (broker, _, other):
        async with await broker.client() as hostile:
            for number in range(50):
                hostile.client_id = f"{number}" + "x" * 10_000
                assert await produce(hostile) == 0
            assert len(broker.node.quotas.rates) <= 6
            await limit(other, {"user": "ANONYMOUS"}, **{PRODUCER: 100})
            hostile.client_id = "yet another"
            assert await produce(hostile, 5000) > 0
        async with await broker.client() as hostile:
            hostile.client_id = "and another"
            assert await produce(hostile) > 0


async def test_where_no_quota_is_set_nothing_is_measured(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t")
        assert await produce(client) == 0
        assert not broker.node.metadata.quotas.limits_clients
        assert len(broker.node.quotas.rates) == len(broker.node.quotas.buckets) == 0
