"""The files that one request enters: `python -m bench.walk`.

A broker in this process serves each kind of request once to warm up, and once under a profiler that notes each change
from one file of the project to another. A request that enters few files, and few of them again, is easy to follow.
"""

from __future__ import annotations

import io
import socket
import struct
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import trio
import trio.testing

from barnabas.broker.log import EventLog
from barnabas.broker.node import Node
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.tests.client import batch_of, fetch_request, frame_of, produce_request
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.types import Message

ROOT = Path(__file__).resolve().parent.parent


class Walk(NamedTuple):
    """The files in the order in which they were entered from another file, and all calls: (file, function)."""

    steps: list[str]
    calls: list[tuple[str, str]]

    @property
    def files(self) -> list[str]:
        """Each file once, in order of its first entry."""
        return list(dict.fromkeys(self.steps))

    @property
    def returns(self) -> int:
        """The number of entries into files that were entered before."""
        return len(self.steps) - len(self.files)


class Follower:
    """A profiler that notes calls into files of the project, without this one and tests."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.calls: list[tuple[str, str]] = []
        self._names: dict[str, str | None] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        name = self._name(frame.f_code.co_filename)
        if name is None:
            return
        self.calls.append((name, frame.f_code.co_qualname))
        if not self.steps or self.steps[-1] != name:
            self.steps.append(name)

    def _name(self, path: str) -> str | None:
        if path not in self._names:
            found = Path(path).resolve()
            inside = found.is_file() and found.is_relative_to(ROOT)
            name = str(found.relative_to(ROOT)) if inside else ""
            self._names[path] = None if name.startswith(("bench/", ".venv/")) or "/tests/" in name else name or None
        return self._names[path]


async def follow(port: int, frames: list[bytes]) -> Walk:
    """Send the frames one after the other, and follow the last one until its answer comes."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setblocking(False)
    follower = Follower()
    try:
        for frame in frames:
            is_last = frame is frames[-1]
            await trio.testing.wait_all_tasks_blocked()
            sock.send(frame)
            if is_last:
                sys.setprofile(follower)
            await answer(sock)
            sys.setprofile(None)
    finally:
        sys.setprofile(None)
        sock.close()
    return Walk(follower.steps, follower.calls)


async def answer(sock: socket.socket) -> bytes:
    """Read one answer."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack(">i", data[:4])[0]:
        try:
            data += sock.recv(1 << 16)
        except BlockingIOError:
            await trio.lowlevel.checkpoint()
    return data


def join(member: str) -> JoinGroupRequest:
    """A member's request to enter a group."""
    return JoinGroupRequest(
        group_id=f"g{member}",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )


async def walks(config: dict[str, str]) -> dict[str, Walk]:
    """The walk of each kind of request."""
    node = Node(BrokerConfig(config), EventLog(io.StringIO()))
    found: dict[str, Walk] = {}
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        await node.topics.create("t", 1, {})
        port = node.bound[0].port
        requests: dict[str, tuple[list[Message], int]] = {
            "produce": ([produce_request("t", batch_of(b"v"))] * 3, 9),
            "fetch": ([fetch_request("t", 0)] * 3, 12),
            "join": ([FindCoordinatorRequest(key="g"), join("1"), join("2")], 3),
        }
        for name, (messages, version) in requests.items():
            found[name] = await follow(port, [frame_of(message, version) for message in messages])
        node.stop()
        await node.stopped.wait()
        nursery.cancel_scope.cancel()
    return found


def main(run: Callable[[dict[str, str]], Awaitable[dict[str, Walk]]] = walks) -> None:
    """Print the walks."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dir": folder, "group.initial.rebalance.delay.ms": "0"}
        for name, walk in trio.run(run, settings).items():
            print(f"{name}: {len(walk.files)} files, {walk.returns} entered again, {len(walk.steps)} steps")
            print("  " + " -> ".join(walk.steps))


if __name__ == "__main__":
    main()
