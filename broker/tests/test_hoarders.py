"""A hoarder takes as much as it can of each shared resource, and an honest client is still served.

The hoarder connects from an address of its own (`HOARDER`), or from the honest client's where a test says so.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.broker.net import frame_timer
from barnabas.broker.net.connection import Connection, State
from barnabas.broker.net.connections import LARGE_REQUESTS
from barnabas.broker.net.framing import KEPT_BYTES, RECEIVE_BYTES
from barnabas.broker.tests.client import Client, batch_of, fetch_request, frame_of, produce_request
from barnabas.broker.tests.conftest import Running, Start, until
from barnabas.broker.workers import COLD_READS, VALIDATIONS, Turns
from barnabas.groupcoord.config import GroupConfig
from barnabas.storage.validation import LIGHT_DECOMPRESSED
from barnabas.wire.compression import CompressionType
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.types import Message, replace

HOARDER = "127.0.0.2"
ANNOUNCED = 90 << 20


async def hoard(broker: Running, stack: AsyncExitStack, count: int, source: str | None = None) -> list[Client]:
    """Connections that are closed at the end of the test."""
    clients = [await broker.client(source) for _ in range(count)]
    for client in clients:
        stack.push_async_callback(trio.aclose_forcefully, client.stream)
    return clients


# --- memory for large requests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [None, HOARDER], ids=["one address", "two addresses"])
async def test_announced_requests_hold_nothing(start: Start, source: str | None) -> None:
    async with start() as broker, AsyncExitStack() as stack, await broker.client() as honest:
        await honest.create_topic("t", max_message_bytes="4000000")
        hoarders = await hoard(broker, stack, 60, source)
        for hoarder in hoarders:
            await hoarder.send_bytes(struct.pack(">i", ANNOUNCED) + bytes(8))
        await until(lambda: sum(c.held_bytes for c in broker.node.connections) == 480)
        assert (await honest.produce("t", batch_of(bytes(3 << 20)))).error_code == 0
        assert len(broker.node.connections) == 61


@pytest.mark.parametrize("stops", [True, False], ids=["stop", "have more to send"])
@pytest.mark.parametrize("source", [None, HOARDER], ids=["one address", "two addresses"])
async def test_begun_requests_that_fill_the_memory(
    start: Start, monkeypatch: pytest.MonkeyPatch, source: str | None, stops: bool
) -> None:
    """From another address they disturb nobody. From the honest client's own, those that stop sending are closed."""
    monkeypatch.setattr("barnabas.broker.net.connections.PACE_CHECK_SECONDS", 0.02)
    if source is not None:
        monkeypatch.setattr(frame_timer, "PATIENCE", 1e9)
    else:
        monkeypatch.setattr(frame_timer, "PATIENCE", 0.1)
    settings = {"queued_max_request_bytes": "40000000"}
    async with start(**settings) as broker, AsyncExitStack() as stack, await broker.client() as honest:
        await honest.create_topic("t", max_message_bytes="4000000")
        hoarders = await hoard(broker, stack, 10, source)
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        size = 1_400_000 if stops else 60_000_000
        for hoarder in hoarders:
            nursery.start_soon(sent, hoarder, struct.pack(">i", ANNOUNCED) + bytes(size))
        memory = broker.node.connections.memory.large
        if stops:
            await until(lambda: memory.total - memory.free == 14_000_000)
        else:
            await until(lambda: any(c.state is State.MEMORY for c in broker.node.connections))
        assert (await honest.produce("t", batch_of(bytes(3 << 20)))).error_code == 0


async def test_who_keeps_memory_and_stops_makes_room(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request has the whole share of its address, another one is outside of the memory; neither sends any more."""
    monkeypatch.setattr("barnabas.broker.net.connections.PACE_CHECK_SECONDS", 0.02)
    monkeypatch.setattr(frame_timer, "PATIENCE", 0.1)
    async with start(queued_max_request_bytes="40000000") as broker, await broker.client() as honest:
        await honest.create_topic("t", max_message_bytes="4000000")
        async with await broker.client() as hoarder, await broker.client() as other:
            for client, size in ((hoarder, 25_000_000), (other, 15_000_000)):
                await client.send_bytes(struct.pack(">i", ANNOUNCED) + bytes(size))
                await until(lambda size=size: any(c.held_bytes == size for c in broker.node.connections))  # type: ignore[misc]
            assert (await honest.produce("t", batch_of(bytes(3 << 20)))).error_code == 0
            assert "made no progress" in broker.log


@pytest.mark.parametrize("source", [None, HOARDER], ids=["one address", "two addresses"])
async def test_requests_that_are_begun_and_left_have_a_bound(
    start: Start, monkeypatch: pytest.MonkeyPatch, source: str | None
) -> None:
    monkeypatch.setattr("barnabas.broker.net.connections.PACE_CHECK_SECONDS", 0.02)
    count, size, total = 200, 230_000, 40_000_000
    async with start(queued_max_request_bytes=str(total)) as broker, await broker.client() as honest:
        await honest.create_topic("t")
        async with AsyncExitStack() as stack:
            hoarders = await hoard(broker, stack, count, source)
            nursery = await stack.enter_async_context(trio.open_nursery())
            stack.callback(nursery.cancel_scope.cancel)
            for hoarder in hoarders:
                nursery.start_soon(sent, hoarder, struct.pack(">i", size + 1) + bytes(size))
            begun: set[Connection] = set()
            most = 0

            def all_have_begun() -> bool:
                """On a busy machine, the first ones are closed before the last ones begin."""
                nonlocal most
                begun.update(c for c in broker.node.connections if c.unfinished_bytes)
                most = max(most, sum(c.unfinished_bytes for c in broker.node.connections))
                return len(begun) >= count

            await until(all_have_begun)
            assert most <= total // 8 + RECEIVE_BYTES + count * KEPT_BYTES + size
            assert (await honest.produce("t", batch_of(bytes(500_000)))).error_code == 0


# --- groups -----------------------------------------------------------------------------------------------------------


async def test_groups_of_one_client_leave_room_for_those_of_others(start: Start) -> None:
    settings = {"group_initial_rebalance_delay_ms": "0"}
    async with start(**settings) as broker, AsyncExitStack() as stack, await broker.client() as honest:
        await honest.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0))
        memory = broker.node.groups.coordinator.memory
        (hoarder,) = await hoard(broker, stack, 1, HOARDER)
        await until(lambda: broker.node.groups.all_loaded)
        code, number = ErrorCode.NONE, 0
        while code == ErrorCode.NONE:
            number += 1
            code = (await hoarder.ask(join_request(f"hoard-{number}", bytes(1 << 20)), 3)).error_code
        assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert memory.used <= GroupConfig().most_bytes // 2
        answer = await honest.ask(join_request("honest", b"x"), 3)
        assert answer.error_code == ErrorCode.NONE
        assert answer.members


def join_request(group: str, metadata: bytes) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", metadata)],
    )


# --- producer ids -----------------------------------------------------------------------------------------------------


async def test_producer_ids_are_not_held_by_who_asks_for_many(start: Start) -> None:
    async with start() as broker, AsyncExitStack() as stack, await broker.client() as honest:
        (hoarder,) = await hoard(broker, stack, 1, HOARDER)
        asking = InitProducerIdRequest(None, 60_000)
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        nursery.start_soon(sent, hoarder, frame_of(asking, 4) * 3000)
        given = [(await honest.ask(asking, 4)).producer_id for _ in range(20)]
        assert len(set(given)) == 20


# --- connections ------------------------------------------------------------------------------------------------------


async def test_connections_of_one_client_make_room_for_those_of_others(start: Start) -> None:
    async with start(max_connections="6") as broker, AsyncExitStack() as stack:
        hoarders = await hoard(broker, stack, 6, HOARDER)
        for hoarder in hoarders[1:]:
            await hoarder.ask(ApiVersionsRequest("x", "1"), 3)
        async with await broker.client() as honest:
            await honest.create_topic("t")
            assert await hoarders[0].is_closed(), "it was idle for longest"
            for hoarder in hoarders[1:]:
                await hoarder.ask(ApiVersionsRequest("x", "1"), 3)
            async with await broker.client(HOARDER) as one_more:
                assert await one_more.is_closed(), "its client has most"
            assert (await honest.produce("t", batch_of(b"v"))).error_code == 0


# --- threads ----------------------------------------------------------------------------------------------------------


LONG_LIST = MetadataRequest(
    topics=[MetadataRequestTopic(name=f"topic-{number}") for number in range(1000)], allow_auto_topic_creation=False
)
BY_TIME = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=0)])])
HEAVY = produce_request("t", batch_of(bytes(LIGHT_DECOMPRESSED), compression=CompressionType.ZSTD))


@pytest.mark.parametrize(
    ("request_", "version", "threads"),
    [
        pytest.param(HEAVY, 9, VALIDATIONS, id="validations"),
        pytest.param(BY_TIME, 5, COLD_READS, id="look-ups by time"),
        pytest.param(LONG_LIST, 9, LARGE_REQUESTS, id="large requests"),
    ],
)
async def test_jobs_of_one_client_are_not_all_before_those_of_others(
    start: Start, monkeypatch: pytest.MonkeyPatch, request_: Message, version: int, threads: int
) -> None:
    asked: list[str] = []
    begun: list[str] = []
    gate = threading.Event()
    run, begin = Turns.run, Turns._begin

    async def held(self: Turns, client: str, call: Callable[[], Any]) -> Any:
        asked.append(client)
        return await run(self, client, lambda: call() if gate.wait(20) else None)

    async def noted(self: Turns, client: str) -> None:
        await begin(self, client)
        begun.append(client)

    async with start() as broker, AsyncExitStack() as stack, await broker.client() as honest:
        stack.callback(gate.set)
        await honest.create_topic("t")
        await honest.produce("t", batch_of(b"v"))
        monkeypatch.setattr(Turns, "run", held)
        monkeypatch.setattr(Turns, "_begin", noted)
        hoarders = await hoard(broker, stack, 20, HOARDER)
        for hoarder in hoarders:
            await hoarder.send(request_, version)
        await until(lambda: len(asked) == 20)
        await honest.send(request_, version)
        await until(lambda: len(asked) == 21)
        gate.set()
        await honest.receive()
        assert begun.index("127.0.0.1") <= 2 * threads + 1


async def test_who_gives_up_waiting_for_a_thread_is_passed_over() -> None:
    turns, gate, done = Turns(1), threading.Event(), []

    async def job(name: str, scope: trio.CancelScope | None = None) -> None:
        with scope or trio.CancelScope():
            await turns.run(name, lambda: done.append(name) if gate.wait(20) else None)

    async with trio.open_nursery() as nursery:
        scopes = [trio.CancelScope() for _ in range(3)]
        for name, scope in (("first", None), ("a", scopes[0]), ("a", None), ("b", scopes[1]), ("c", scopes[2])):
            nursery.start_soon(job, name, scope)
            await trio.testing.wait_all_tasks_blocked()
        for scope in scopes[:2]:
            scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        gate.set()
    assert done == ["first", "a", "c"]
    assert await turns.run("again", lambda: 7) == 7


# --- fetch sessions ---------------------------------------------------------------------------------------------------


async def test_fetch_sessions_of_one_client_make_room_for_those_of_others(start: Start) -> None:
    settings = {"max_incremental_fetch_session_cache_slots": "10"}
    async with start(**settings) as broker, AsyncExitStack() as stack, await broker.client() as honest:
        await honest.create_topic("t")
        (hoarder,) = await hoard(broker, stack, 1, HOARDER)
        opening = replace(fetch_request("t", min_bytes=0), session_epoch=0)
        told = [(await hoarder.ask(opening, 12)).session_id for _ in range(20)]
        assert sum(each > 0 for each in told) == 10
        assert (await honest.ask(opening, 12)).session_id > 0


# --- transactional ids ------------------------------------------------------------------------------------------------


async def test_transactional_ids_of_one_client_leave_room_for_those_of_others(start: Start) -> None:
    settings = {"transaction_state_log_num_partitions": "1"}
    async with start(**settings) as broker, AsyncExitStack() as stack, await broker.client() as honest:
        await honest.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=1))
        coordinator = broker.node.transactions.coordinator
        await until(lambda: any(shard.is_loaded for shard in coordinator.shards.by_partition.values()))
        coordinator.shards._shares.total = 100_000
        (hoarder,) = await hoard(broker, stack, 1, HOARDER)
        codes = [(await hoarder.ask(init_request(f"hoard-{n}-" + "x" * 2000), 4)).error_code for n in range(20)]
        assert set(codes) == {ErrorCode.NONE, ErrorCode.POLICY_VIOLATION}
        assert (await honest.ask(init_request("honest"), 4)).error_code == ErrorCode.NONE


def init_request(transactional_id: str) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id, 60_000)


async def sent(client: Client, data: bytes) -> None:
    """Send as long as the broker accepts bytes."""
    try:
        await client.send_bytes(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
