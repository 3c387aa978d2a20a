"""Clients that send without pause, and one that does not."""

from __future__ import annotations

import socket
from contextlib import nullcontext
from functools import partial

import pytest
import trio

from barnabas.broker.net.connection import Connection
from barnabas.broker.net.poller import Poller
from barnabas.broker.tests.client import batch_of, frame_of, produce_request
from barnabas.broker.tests.conftest import Start
from barnabas.broker.tests.test_poller import pairs
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.metadata import MetadataRequest

PUSHED = 30_000
ASKED = 5


async def test_who_has_just_become_readable_comes_before_those_who_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the connections that continue, one has its turn in each pass, so none waits forever."""
    monkeypatch.setattr("barnabas.broker.net.poller.HOLD_SECONDS", 0.0)
    seen: list[str] = []
    poller = Poller(nullcontext())
    done = trio.Event()

    def push(name: str) -> None:
        seen.append(name)
        if len(seen) < 30:
            poller.again(pushers[name])
        else:
            done.set()

    pushers = {name: partial(push, name) for name in ("one", "two")}
    with pairs(1) as [(ours, theirs)]:

        def speak(sock: socket.socket) -> None:
            sock.recv(1)
            seen.append("quiet")
            if seen.count("quiet") < 5:
                theirs.send(b"x")

        poller.add(ours, partial(speak, ours))
        for call in pushers.values():
            poller.again(call)
        theirs.send(b"x")
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(poller.run)
                await done.wait()
                nursery.cancel_scope.cancel()
        poller.close()
    last = len(seen) - 1 - seen[::-1].index("quiet")
    assert seen.count("quiet") == 5
    assert last < 12, "each time it was served in the next pass"
    assert abs(seen.count("one") - seen.count("two")) <= 1, "those who push take turns"


@pytest.mark.parametrize("what", ["versions", "metadata", "produce without answers"])
async def test_a_client_that_pushes_gives_way(start: Start, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr("barnabas.broker.net.connection.SLICE_SECONDS", 0.0)
    handled: list[Connection] = []
    dispatch = Connection._dispatch

    def noted(self: Connection, frame: bytes | memoryview) -> bool:
        handled.append(self)
        return dispatch(self, frame)

    async with start() as broker, await broker.client() as pushing, await broker.client() as quiet:
        await quiet.create_topic("t")
        frame = {
            "versions": frame_of(ApiVersionsRequest("push", "1"), 3),
            "metadata": frame_of(MetadataRequest(topics=None), 9),
            "produce without answers": frame_of(produce_request("t", batch_of(b"v"), acks=0), 9),
        }[what]

        async def drop_answers() -> None:
            while True:
                await pushing.stream.receive_some(1 << 20)

        monkeypatch.setattr(Connection, "_dispatch", noted)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drop_answers)
            nursery.start_soon(pushing.send_bytes, frame * PUSHED)
            for _ in range(ASKED):
                assert (await quiet.produce("t", batch_of(b"quiet"))).error_code == 0
            assert len(handled) - ASKED < PUSHED, "the quiet client has waited until all was pushed"
            nursery.cancel_scope.cancel()
