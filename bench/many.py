"""Clients in large numbers on one trio loop, with the frames that each kind of client sends.

Raw sockets and our own codecs: a thousand librdkafka instances would measure librdkafka. Every function is a piece of
work for `bench.load` and runs in its process.
"""

from __future__ import annotations

import resource
import time
from typing import Any, TypeVar

import trio

from bench.percentiles import percentiles
from wire.batch import Record, build_batch
from wire.codegen import codec
from wire.errors import ErrorCode
from wire.header import skip_header_tags, write_request_header
from wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from wire.types import Message

R = TypeVar("R", bound=Message)
# Versions that both brokers have, with topics by name.
VERSIONS = {0: 9, 1: 12, 3: 12, 10: 3, 11: 7, 12: 4, 14: 5, 18: 3, 19: 5}


class Client:
    """One connection, one request at a time."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._buffer = b""

    @classmethod
    async def connect(cls, server: str) -> Client:
        host, _, port = server.rpartition(":")
        return cls(await trio.open_tcp_stream(host, int(port)))

    async def ask(self, request: Message, response: type[R]) -> R:
        """Send a request and await its response."""
        spec = type(request).__wire__
        version = VERSIONS[spec.key]
        flexible = version in spec.flexible
        body = write_request_header(spec.key, version, 1, "bench", flexible) + codec(type(request), version).build(
            request
        )
        return codec(response, version).decode(
            *await self.exchange(len(body).to_bytes(4, "big") + body, spec.key, flexible)
        )[0]

    async def exchange(self, frame: bytes, key: int = 0, flexible: bool = True) -> tuple[bytes, int]:
        """Send a frame; gives the answer and the position of its body."""
        await self.stream.send_all(frame)
        while len(self._buffer) < 4 or len(self._buffer) < 4 + int.from_bytes(self._buffer[:4], "big"):
            more = await self.stream.receive_some(1 << 20)
            if not more:
                raise SystemExit("the broker closed a connection")
            self._buffer += more
        size = 4 + int.from_bytes(self._buffer[:4], "big")
        answer, self._buffer = self._buffer[4:size], self._buffer[size:]
        return answer, skip_header_tags(answer, 4) if flexible and key != 18 else 4


def _run(work: Any, *args: Any) -> dict[str, Any]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard) if soft < hard else (soft, hard))
    found: dict[str, Any] = trio.run(work, *args)
    return found


def check(code: int) -> None:
    """Stop at an error code."""
    if code:
        raise SystemExit(f"the broker answered {ErrorCode(code).name}")


# --- producers that wait for their fsync ------------------------------------------------------------------------------


def producers(
    server: str, topic: str = "bench", count: int = 16, seconds: float = 5, size: int = 100, partitions: int = 6
) -> dict[str, Any]:
    """Many producers, one record per request and one request in flight each, acks=all."""

    async def work() -> dict[str, Any]:
        times: list[float] = []
        began = trio.current_time()

        async def one(number: int) -> None:
            client = await Client.connect(server)
            data = build_batch([Record(None, bytes(100), int(time.time() * 1000))])
            part = PartitionProduceData(number % 6, data)
            request = ProduceRequest(
                acks=-1, timeout_ms=30000, topic_data=[TopicProduceData(topic, partition_data=[part])]
            )
            answer = await client.ask(request, ProduceResponse)
            check(answer.responses[0].partition_responses[0].error_code)
            body = write_request_header(0, 9, 1, "bench", True) + codec(ProduceRequest, 9).build(request)
            frame = len(body).to_bytes(4, "big") + body
            while trio.current_time() < began + seconds:
                sent = trio.current_time()
                await client.exchange(frame)
                times.append(trio.current_time() - sent)

        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(one, number)
        return {"seconds": trio.current_time() - began, "requests": len(times), **percentiles(times)}

    return _run(work)


# --- connections that do nothing --------------------------------------------------------------------------------------


def connections(server: str, count: int = 2000, hold: float = 5) -> dict[str, Any]:
    """Connect, ask for the versions, and stay. Prints a line when all are there, for who measures meanwhile."""

    async def work() -> dict[str, Any]:
        began = trio.current_time()
        clients: list[Client] = []
        limit = trio.CapacityLimiter(100)

        async def one() -> None:
            async with limit:
                client = await Client.connect(server)
                check((await client.ask(ApiVersionsRequest("bench", "1"), ApiVersionsResponse)).error_code)
                clients.append(client)

        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(one)
        took = trio.current_time() - began
        print("ready", flush=True)
        await trio.sleep(hold)  # the measured state is to be idle
        return {"seconds": took, "connections": len(clients)}

    return _run(work)


# --- partitions in large numbers --------------------------------------------------------------------------------------


def partitions(server: str, count: int = 10_000, per_topic: int = 1000) -> dict[str, Any]:
    """Create, ask for the metadata of all, produce one record to each, fetch them all in one session."""

    async def work() -> dict[str, Any]:
        client = await Client.connect(server)
        names = [f"many-{count}-{i}" for i in range(max(1, count // per_topic))]
        share = min(count, per_topic)
        found: dict[str, Any] = {"partitions": count}
        began = trio.current_time()
        for name in names:
            made = await client.ask(
                CreateTopicsRequest(topics=[CreatableTopic(name, share, 1)], timeout_ms=120_000), CreateTopicsResponse
            )
            check(made.topics[0].error_code)
        found["create s"] = trio.current_time() - began
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in names], allow_auto_topic_creation=False)
        await client.ask(asked, MetadataResponse)
        began = trio.current_time()
        for _ in range(5):
            answer = await client.ask(asked, MetadataResponse)
        found["metadata ms"] = (trio.current_time() - began) / 5 * 1000
        assert sum(len(t.partitions) for t in answer.topics) == count
        data = build_batch([Record(None, bytes(100), int(time.time() * 1000))])
        began = trio.current_time()
        for name in names:
            request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[
                TopicProduceData(name, partition_data=[PartitionProduceData(p, data) for p in range(share)])
            ])  # fmt: skip
            produced = await client.ask(request, ProduceResponse)
            for part in produced.responses[0].partition_responses:
                check(part.error_code)
        found["produce to all s"] = trio.current_time() - began
        found.update(await _session(client, names, share))
        return found

    return _run(work)


async def _session(client: Client, names: list[str], share: int) -> dict[str, Any]:
    """A fetch session over all partitions: the full first fetch, then empty incremental ones."""
    topics = [FetchTopic(n, partitions=[FetchPartition(p, 0, 1, partition_max_bytes=1 << 20) for p in range(share)])
              for n in names]  # fmt: skip
    began = trio.current_time()
    first = await client.ask(FetchRequest(max_wait_ms=0, session_epoch=0, topics=topics), FetchResponse)
    check(first.error_code)
    full = trio.current_time() - began
    times = []
    for epoch in range(1, 21):
        began = trio.current_time()
        answer = await client.ask(
            FetchRequest(max_wait_ms=0, session_id=first.session_id, session_epoch=epoch), FetchResponse
        )
        times.append(trio.current_time() - began)
        check(answer.error_code)
    return {"full fetch ms": full * 1000, "incremental fetch ms": sorted(times)[len(times) // 2] * 1000}


# --- groups -----------------------------------------------------------------------------------------------------------


def groups(server: str, count: int = 1000, members: int = 4, hold: float = 10) -> dict[str, Any]:
    """Groups of several members, each with its connection: all join, heartbeat, and rebalance once."""

    async def work() -> dict[str, Any]:
        first = await Client.connect(server)
        while (await first.ask(FindCoordinatorRequest("g-0"), FindCoordinatorResponse)).error_code:
            await trio.sleep(0.1)  # Kafka makes its offsets topic in the background and tells nobody when
        stable = [trio.Event() for _ in range(count)]
        arrived = [0] * count
        stop = trio.Event()
        beats = 0
        protocols = [JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\xff\xff\xff\xff")]
        limit = trio.CapacityLimiter(200)

        async def member(group: int) -> None:
            nonlocal beats
            async with limit:
                client = await Client.connect(server)
            name, member_id, generation = f"g-{group}", "", -1
            while not stop.is_set():
                joined = await client.ask(
                    JoinGroupRequest(name, 30_000, 30_000, member_id, None, "consumer", protocols), JoinGroupResponse
                )
                if joined.error_code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS):
                    member_id = joined.member_id or member_id
                    continue
                check(joined.error_code)
                member_id, generation = joined.member_id, joined.generation_id
                shares = [SyncGroupRequestAssignment(m.member_id, b"\0\0\0\0\0\0") for m in joined.members]
                synced = await client.ask(
                    SyncGroupRequest(name, generation, member_id, None, "consumer", "range", shares), SyncGroupResponse
                )
                if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                    continue
                check(synced.error_code)
                if joined.leader == member_id:
                    arrived[group] = len(joined.members)
                    if arrived[group] >= members:
                        stable[group].set()
                while not stop.is_set():
                    with trio.move_on_after(3):
                        await stop.wait()
                    beat = await client.ask(HeartbeatRequest(name, generation, member_id), HeartbeatResponse)
                    beats += 1
                    if beat.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                        break
                    check(beat.error_code)

        async with trio.open_nursery() as nursery:
            began = trio.current_time()
            for group in range(count):
                for _ in range(members):
                    nursery.start_soon(member, group)
            for event in stable:
                await event.wait()
            joined_s = trio.current_time() - began
            print("ready", flush=True)
            before = beats
            await trio.sleep(hold)  # steady heartbeats are the measured state
            rate = (beats - before) / hold
            began = trio.current_time()
            for group in range(count):
                arrived[group] = 0
                nursery.start_soon(member, group)
            for group in range(count):
                while arrived[group] <= members:
                    await trio.sleep(0.01)  # a poll of our own counters, not of the broker
            rebalanced_s = trio.current_time() - began
            stop.set()
        return {"join s": joined_s, "heartbeats/s": rate, "rebalance s": rebalanced_s}

    return _run(work)
