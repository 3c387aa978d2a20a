"""How many connections may exist, and how fast new ones may come. The clock stands still unless a test moves it."""

from __future__ import annotations

import socket

import pytest
import trio
from trio.testing import MockClock

from barnabas.broker.net import strangers
from barnabas.broker.settings.quotas import CONNECTIONS
from barnabas.broker.tests.client import Client, Closed, connect, frame_of
from barnabas.broker.tests.conftest import Running, Start
from barnabas.broker.tests.sasl_client import log_in_plain
from barnabas.broker.tests.test_login import SETTINGS
from barnabas.broker.tests.test_quotas_enforced import happens, limit
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.metadata import MetadataRequest

OTHER = "127.0.0.2"
HELLO = ApiVersionsRequest("t", "1")


async def is_served(client: Client) -> bool:
    """Whether the client is admitted; False if its connection is closed."""
    try:
        return bool((await client.ask(HELLO)).api_keys)
    except (Closed, trio.BrokenResourceError):
        return False


async def set_key(client: Client, name: str, value: str) -> None:
    resource = AlterConfigsResource(4, "", [AlterableConfig(name, 0, value)])
    answer = await client.ask(IncrementalAlterConfigsRequest([resource]))
    assert answer.responses[0].error_code == 0, answer


# --- how fast ---------------------------------------------------------------------------------------------------------


async def test_connections_that_come_too_fast_wait(start: Start, mock_clock: MockClock) -> None:
    """One in each second, over eleven windows of one second: the first ten are accepted at once."""
    async with start(max_connection_creation_rate="1") as broker:
        clients = [await broker.client() for _ in range(12)]
        for client in clients[:10]:
            assert await is_served(client)
        await clients[10].send(HELLO)
        await clients[11].send(HELLO)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(broker.node.connections) == 10
        mock_clock.jump(1.0)
        assert (await clients[10].receive()).api_keys
        assert len(broker.node.connections) == 11
        mock_clock.jump(1.0)
        assert (await clients[11].receive()).api_keys
        for client in clients:
            await client.stream.aclose()


async def test_one_listener_may_be_slower_than_the_others(start: Start, mock_clock: MockClock) -> None:
    more = {
        "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "listener.name.b.max.connection.creation.rate": "1",
        "quota.window.num": "2",
    }
    async with start(more=more) as broker:
        for _ in range(5):
            async with await connect(broker.port_of("A")) as client:
                assert await is_served(client)
        async with await connect(broker.port_of("B")) as first, await connect(broker.port_of("B")) as second:
            assert await is_served(first)
            await second.send(HELLO)
            async with await connect(broker.port_of("A")) as client:
                assert await is_served(client)
            assert sum(each.listener == "B" for each in broker.node.connections) == 1
            mock_clock.jump(1.0)
            assert (await second.receive()).api_keys


async def test_an_address_that_comes_too_fast_is_turned_away(start: Start, mock_clock: MockClock) -> None:
    async with start(quota_window_num="2") as broker, await broker.client() as admin:
        await limit(admin, {"ip": OTHER}, **{CONNECTIONS: 2})
        clients = [await broker.client(OTHER) for _ in range(4)]
        assert [await is_served(client) for client in clients[:2]] == [True, True]
        await clients[2].send(HELLO)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(broker.node.connections) == 3
        async with await broker.client() as honest:
            assert await is_served(honest)
        mock_clock.jump(1.0)
        assert [await client.is_closed() for client in clients[2:]] == [True, True]
        mock_clock.jump(10.0)
        async with await broker.client(OTHER) as again:
            assert await is_served(again)
        await limit(admin, {"ip": OTHER}, **{CONNECTIONS: None})
        for _ in range(6):
            async with await broker.client(OTHER) as free:
                assert await is_served(free)
        for client in clients:
            await client.stream.aclose()


async def test_a_quota_for_all_addresses_is_one_for_each(start: Start, mock_clock: MockClock) -> None:
    async with start(quota_window_num="2") as broker, await broker.client() as admin:
        await limit(admin, {"ip": None}, **{CONNECTIONS: 1})
        for source in (OTHER, "127.0.0.3"):
            async with await broker.client(source) as first, await broker.client(source) as second:
                assert await is_served(first)
                await second.send(HELLO)
                await happens(lambda: len(broker.node.connections._refused) == 1)
                mock_clock.jump(1.0)
                assert await second.is_closed()


# --- how many ---------------------------------------------------------------------------------------------------------


async def test_some_addresses_may_have_other_numbers(start: Start) -> None:
    more = {"max.connections.per.ip": "2", "max.connections.per.ip.overrides": f"{OTHER}:1,localhost:3"}
    async with start(more=more) as broker:
        async with await broker.client(OTHER) as one, await broker.client(OTHER) as two:
            assert [await is_served(one), await is_served(two)] == [True, False]
        async with await broker.client("127.0.0.3") as one, await broker.client("127.0.0.3") as two:
            assert [await is_served(one), await is_served(two)] == [True, True]
        limits = broker.node.connections._address_limits
        await happens(lambda: limits.of("127.0.0.1", broker.node.connections._nursery.start_soon) == 3)


async def test_the_number_can_be_changed(start: Start) -> None:
    async with start() as broker, await broker.client() as admin:
        await set_key(admin, "max.connections.per.ip.overrides", f"{OTHER}:0")
        async with await broker.client(OTHER) as client:
            assert not await is_served(client)
        await set_key(admin, "max.connections.per.ip.overrides", "")
        async with await broker.client(OTHER) as client:
            assert await is_served(client)
        await set_key(admin, "max.connections", "1")
        async with await broker.client() as client:
            assert not await is_served(client)


async def test_a_host_that_nobody_knows_is_told(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    async with start(more={"max.connections.per.ip.overrides": "no-such-host:1"}) as broker:
        await happens(lambda: "connections.override.unknown_host" in broker.log)


async def test_a_listener_may_have_a_number_of_its_own(start: Start) -> None:
    more = {
        "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "listener.name.b.max.connections": "2",
    }
    async with start(more=more) as broker:
        b = broker.port_of("B")
        async with await connect(b) as one, await connect(b) as two, await connect(b) as three:
            assert [await is_served(each) for each in (one, two, three)] == [True, True, False]
            async with await connect(b, source=OTHER) as other:
                assert await is_served(other)
            assert await one.is_closed()
        for _ in range(3):
            async with await connect(broker.port_of("A")) as client:
                assert await is_served(client)


# --- strangers --------------------------------------------------------------------------------------------------------


async def call(broker: Running, source: str | None = None) -> Client:
    return await connect(broker.port_of("SASL_PLAINTEXT"), source=source)


async def test_strangers_leave_the_connections_of_those_who_have_logged_in(start: Start) -> None:
    async with start(more={**SETTINGS, "max.connections": "32"}) as broker, await call(broker) as alice:
        await log_in_plain(alice, "alice", "alice-secret")
        hoarded = [await call(broker, OTHER) for _ in range(40)]
        await happens(lambda: len(broker.node.connections) == 1 + 32 // strangers.PART)
        async with await call(broker) as bob:
            await log_in_plain(bob, "bob", "bob,secret")
            assert len(broker.node.connections.strangers) == 32 // strangers.PART - 1
            for known in (alice, bob):
                assert (await known.ask(MetadataRequest(topics=[]))).topics == []
        for client in hoarded:
            await client.stream.aclose()


async def test_what_strangers_hold_in_memory_is_theirs(start: Start) -> None:
    """Unfinished requests of strangers fill the memory for strangers; that of other clients is not affected."""
    more = {**SETTINGS, "queued.max.request.bytes": "16000000"}
    async with start(more=more) as broker, await call(broker) as alice:
        await log_in_plain(alice, "alice", "alice-secret")
        memory = broker.node.connections.memory
        hoarded = [await call(broker, OTHER) for _ in range(20)]
        async with trio.open_nursery() as nursery:
            for client in hoarded:
                nursery.start_soon(send_what_is_taken, client, (500_000).to_bytes(4, "big") + bytes(400_000))
            await happens(lambda: memory.strangers.is_waited_for)
            assert memory.small.free == memory.small.total
            assert memory.large.free == memory.large.total
            total = sum(each.unfinished_bytes for each in broker.node.connections)
            assert total <= memory.strangers.total + 500_000 + 20 * (16 << 10)
            assert (await alice.ask(MetadataRequest(topics=[]))).topics == []
            nursery.cancel_scope.cancel()
        for client in hoarded:
            await trio.aclose_forcefully(client.stream)


async def send_what_is_taken(client: Client, data: bytes) -> None:
    try:
        await client.send_bytes(data)
    except trio.BrokenResourceError:
        pass


async def test_a_stranger_that_does_not_read_has_few_answers(start: Start) -> None:
    async with start(more=SETTINGS) as broker, await call(broker) as client, trio.open_nursery() as nursery:
        nursery.start_soon(send_what_is_taken, client, frame_of(HELLO, 3) * 20_000)
        await happens(lambda: any(each.unsent_bytes > 16 << 10 for each in broker.node.connections))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert max(each.unsent_bytes for each in broker.node.connections) < 20 << 10
        nursery.cancel_scope.cancel()


async def test_who_logs_in_may_send_and_leave_what_all_may(start: Start) -> None:
    async with start(more=SETTINGS) as broker, await call(broker) as alice:
        (stranger,) = broker.node.connections
        assert stranger.is_stranger
        await log_in_plain(alice, "alice", "alice-secret")
        assert not stranger.is_stranger
        assert len(broker.node.connections.strangers) == 0


@pytest.mark.parametrize("value", ["1.5", "-1", "many"])
async def test_a_rate_that_is_none_is_refused(start: Start, value: str) -> None:
    async with start() as broker, await broker.client() as admin:
        resource = AlterConfigsResource(4, "", [AlterableConfig("max.connection.creation.rate", 0, value)])
        answer = await admin.ask(IncrementalAlterConfigsRequest([resource]))
        assert answer.responses[0].error_code != 0
