"""Groups of consumers on one trio loop: join, steady heartbeats, one rebalance.

    python -m bench.groups HOST:PORT [COUNT]

The client uses raw sockets and our own codecs: thousands of librdkafka instances would measure librdkafka. It takes
about as much CPU as the broker, so its times compare brokers under the same client, and do not show the limit of a
broker.
"""

from __future__ import annotations

import json
import sys
from typing import TypeVar

import trio

from barnabas.wire.codegen import message_codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import skip_header_tags
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas.wire.types import Message
from bench import frames
from bench.limits import raise_open_files

R = TypeVar("R", bound=Message)
# Versions that both brokers support.
VERSIONS: dict[type[Message], int] = {
    FindCoordinatorRequest: 3,
    JoinGroupRequest: 7,
    HeartbeatRequest: 4,
    SyncGroupRequest: 5,
}
MEMBERS = 4
HEARTBEAT_SECONDS = 3
HOLD_SECONDS = 6
CONNECTING = 200
AGAIN = (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS)
NOT_YET = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
PAUSE_SECONDS = 0.1
PROTOCOLS = [JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\xff\xff\xff\xff")]


class Client:
    """One connection, one request at a time."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._buffer = b""

    @classmethod
    async def connect(cls, server: str) -> Client:
        """Connect to HOST:PORT."""
        host, _, port = server.rpartition(":")
        return cls(await trio.open_tcp_stream(host, int(port)))

    async def ask(self, request: Message, response: type[R]) -> R:
        """Send a request and await its response."""
        version = VERSIONS[type(request)]
        await self._stream.send_all(frames.frame(request, version))
        while len(self._buffer) < 4 or len(self._buffer) < 4 + int.from_bytes(self._buffer[:4], "big"):
            more = await self._stream.receive_some(1 << 20)
            if not more:
                raise SystemExit("the broker closed a connection")
            self._buffer += more
        size = 4 + int.from_bytes(self._buffer[:4], "big")
        answer, self._buffer = self._buffer[4:size], self._buffer[size:]
        body = skip_header_tags(answer, 4) if version in type(request).__wire__.flexible else 4
        return message_codec(response, version).decode(answer, body)[0]


def check(code: int) -> None:
    """Exit if there is an error code."""
    if code:
        raise SystemExit(f"the broker answered {ErrorCode(code).name}")


class Groups:
    """All groups, and which of them are complete."""

    def __init__(self, server: str, count: int) -> None:
        self._server, self._count = server, count
        self._stable = [trio.Event() for _ in range(count)]
        self._arrived = [0] * count
        self._stop = trio.Event()
        self._limit = trio.CapacityLimiter(CONNECTING)
        self._beats = 0

    async def run(self) -> dict[str, float]:
        """Join, send heartbeats, rebalance; returns the times and the rate."""
        await self._coordinators()
        async with trio.open_nursery() as nursery:
            began = trio.current_time()
            for group in range(self._count):
                for _ in range(MEMBERS):
                    nursery.start_soon(self._member, group)
            for event in self._stable:
                await event.wait()
            joined = trio.current_time() - began
            print("measuring", flush=True)
            before = self._beats
            await trio.sleep(HOLD_SECONDS)  # measure steady heartbeats
            rate = (self._beats - before) / HOLD_SECONDS
            print("measured", flush=True)
            began = trio.current_time()
            for group in range(self._count):
                self._arrived[group] = 0
                nursery.start_soon(self._member, group)
            for group in range(self._count):
                while self._arrived[group] <= MEMBERS:
                    await trio.sleep(0.01)  # a poll of our own counters, not of the broker
            rebalanced = trio.current_time() - began
            self._stop.set()
        return {"join s": joined, "heartbeats/s": rate, "rebalance s": rebalanced}

    async def _coordinators(self) -> None:
        """Return when every group has its coordinator: Kafka loads them in the background, without a notice."""
        client = await Client.connect(self._server)
        while (await client.ask(FindCoordinatorRequest("g-0"), FindCoordinatorResponse)).error_code:
            await trio.sleep(PAUSE_SECONDS)
        for group in range(self._count):
            stranger = HeartbeatRequest(f"g-{group}", 0, "nobody")
            while (await client.ask(stranger, HeartbeatResponse)).error_code in NOT_YET:
                await trio.sleep(PAUSE_SECONDS)

    async def _member(self, group: int) -> None:
        """A member, until the end of the run: it joins, sends heartbeats, and joins again when the group rebalances."""
        async with self._limit:
            client = await Client.connect(self._server)
        name, member_id = f"g-{group}", ""
        while not self._stop.is_set():
            joined = await client.ask(
                JoinGroupRequest(name, 30_000, 30_000, member_id, None, "consumer", PROTOCOLS), JoinGroupResponse
            )
            if joined.error_code in AGAIN:
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
                self._arrived[group] = len(joined.members)
                if self._arrived[group] >= MEMBERS:
                    self._stable[group].set()
            await self._beat(client, HeartbeatRequest(name, generation, member_id))

    async def _beat(self, client: Client, heartbeat: HeartbeatRequest) -> None:
        """Send heartbeats until the group rebalances."""
        while not self._stop.is_set():
            with trio.move_on_after(HEARTBEAT_SECONDS):
                await self._stop.wait()
            beat = await client.ask(heartbeat, HeartbeatResponse)
            self._beats += 1
            if beat.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                return
            check(beat.error_code)


async def main() -> None:
    """Measure and print."""
    print(json.dumps(await Groups(sys.argv[1], int(sys.argv[2])).run()))


if __name__ == "__main__":
    raise_open_files()
    try:
        trio.run(main)
    except* SystemExit as failed:
        reason: BaseException = failed
        while isinstance(reason, BaseExceptionGroup):
            reason = reason.exceptions[0]
        sys.exit(str(reason))
