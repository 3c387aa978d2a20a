"""Which handshake continues next, how many there may be, and when one has taken too long."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.broker.net import handshakes
from barnabas.broker.net.errors import Disconnected
from barnabas.broker.net.handshakes import SECONDS, Handshakes
from barnabas.broker.net.tls import MOST_LOOKS, TlsTransport
from barnabas.broker.security.principal_mapping import PrincipalMapping
from barnabas.broker.security.tls import TlsTerms
from barnabas.broker.tests.tls_client import client_context
from barnabas.broker.workers import Workers
from compat_tests.security.certificates import Authority

CA = Authority()


class Passes:
    """A poller whose passes are made by the test."""

    def __init__(self) -> None:
        self.calls: dict[Callable[[], None], None] = {}

    def again(self, call: Callable[[], None]) -> None:
        self.calls.setdefault(call)

    def one(self) -> None:
        """Make the first call."""
        call = next(iter(self.calls))
        del self.calls[call]
        call()

    def all(self) -> None:
        while self.calls:
            self.one()


class Shaking:
    """A handshake with two steps, unless its client leaves."""

    def __init__(self, client: str, name: str, shared: Handshakes, said: list[str]) -> None:
        self.client, self.name, self._shared, self._said = client, name, shared, said
        self.steps = 0

    def step(self) -> None:
        self._said.append(self.name)
        self.steps += 1
        if self.steps == 2:
            self._shared.ended(self)

    def give_up(self, reason: str) -> None:
        self._said.append(f"not {self.name}")
        self._shared.ended(self)


@pytest.fixture
def poller() -> Passes:
    return Passes()


@pytest.fixture
def shared(poller: Passes, monkeypatch: pytest.MonkeyPatch) -> Handshakes:
    monkeypatch.setattr(handshakes, "MOST_BEGUN", 3)
    return Handshakes(poller)  # type: ignore[arg-type]


def ready(shared: Handshakes, said: list[str], client: str, *names: str) -> list[Shaking]:
    found = [Shaking(client, name, shared, said) for name in names]
    for each in found:
        shared.ready(each)
    return found


def test_clients_take_turns(shared: Handshakes, poller: Passes) -> None:
    said: list[str] = []
    ready(shared, said, "a", "a1", "a2")
    ready(shared, said, "b", "b1")
    poller.all()
    assert said == ["a1", "b1", "a2"]
    assert shared.begun == 3


def test_between_two_steps_others_have_their_turn(shared: Handshakes, poller: Passes) -> None:
    said: list[str] = []
    ready(shared, said, "a", "a1", "a2")
    poller.again(lambda: said.append("other"))
    poller.all()
    assert said == ["a1", "other", "a2"]


def test_one_that_has_begun_goes_on_beside_new_ones(shared: Handshakes, poller: Passes) -> None:
    said: list[str] = []
    (first,) = ready(shared, said, "a", "a1")
    poller.all()
    ready(shared, said, "b", "b1", "b2")
    shared.ready(first)
    poller.all()
    assert said == ["a1", "a1", "b1", "b2"]


def test_a_further_one_of_the_same_client_waits(shared: Handshakes, poller: Passes) -> None:
    said: list[str] = []
    first, *_ = ready(shared, said, "a", "a1", "a2", "a3", "a4")
    poller.all()
    assert (said, shared.begun) == (["a1", "a2", "a3"], 3)
    shared.ready(first)
    poller.all()
    assert (said, shared.begun) == (["a1", "a2", "a3", "a1", "a4"], 3)


def test_a_client_that_has_fewer_takes_a_place(shared: Handshakes, poller: Passes) -> None:
    said: list[str] = []
    ready(shared, said, "a", "a1", "a2", "a3", "a4")
    poller.all()
    ready(shared, said, "b", "b1", "b2")
    poller.all()
    assert said == ["a1", "a2", "a3", "not a1", "b1"]
    assert shared.begun == 3


def test_one_that_is_closed_frees_its_place(shared: Handshakes, poller: Passes) -> None:
    said: list[str] = []
    first, _, _, waiting, last = ready(shared, said, "a", "a1", "a2", "a3", "a4", "a5")
    poller.all()
    shared.ended(waiting)
    shared.ended(first)
    poller.all()
    assert said == ["a1", "a2", "a3", "a5"]
    shared.ended(last)
    assert shared.begun == 2


class Pair:
    """The server's transport, and a client's socket."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.poller, self.told = Passes(), [""]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        terms = TlsTerms(context, PrincipalMapping("DEFAULT"), names_clients=True)
        shared = Handshakes(self.poller)  # type: ignore[arg-type]
        self.transport = TlsTransport(self.ours, Workers(), "a", terms, shared, self.tell)
        self.transport.attach(lambda _: None, lambda: None, lambda: None)

    def tell(self, event: str, reason: str) -> None:
        self.told.append(f"{event}: {reason}")

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.theirs.close()
        self.transport.close()


def hello() -> bytes:
    """The first bytes of a client."""
    outgoing = ssl.MemoryBIO()
    client = client_context(CA).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="x")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


ROOM = memoryview(bytearray(1000))


async def test_a_client_that_says_nothing_has_its_time(autojump_clock: Any) -> None:
    with Pair() as pair:
        assert pair.transport.overdue(trio.current_time()) is None
        await trio.sleep(SECONDS + 0.1)
        assert pair.transport.overdue(trio.current_time()) == ""
        assert "was not done after 30 s" in pair.told[-1]


async def test_time_that_it_waits_for_its_turn_does_not_count(autojump_clock: Any) -> None:
    with Pair() as pair:
        pair.theirs.send(hello())
        await trio.sleep(SECONDS - 1)
        assert pair.transport.receive(ROOM) is None
        await trio.sleep(100)
        assert pair.transport.overdue(trio.current_time()) is None
        pair.poller.all()
        assert pair.transport.overdue(trio.current_time()) is None
        await trio.sleep(1.1)
        assert pair.transport.overdue(trio.current_time()) == ""


async def test_nothing_is_kept_for_a_client_before_its_first_record_is_whole() -> None:
    with Pair() as pair:
        data = hello()
        pair.theirs.send(data[:-1])
        assert pair.transport.receive(ROOM) is None
        assert (pair.poller.calls, pair.transport._ssl) == ({}, None)
        pair.theirs.send(data[-1:])
        assert pair.transport.receive(ROOM) is None
        assert len(pair.poller.calls) == 1


async def test_more_than_a_handshake_has_is_the_end() -> None:
    with Pair() as pair:
        pair.theirs.setblocking(False)
        with pytest.raises(Disconnected):  # noqa: PT012
            for _ in range(100):
                pair.theirs.send(b"\x16\x03\x01\x40\x00" + bytes(16 << 10))
                pair.transport.receive(ROOM)
        assert "more than 64 KiB" in pair.told[-1]


async def test_a_record_that_never_ends_is_the_end_of_its_connection() -> None:
    with Pair() as pair:
        pair.transport.is_open = True
        pair.transport._held = memoryview(b"\x17\x03\x03\x00\x10x")
        found = [pair.transport.overdue(0) for _ in range(MOST_LOOKS + 1)]
        assert found == [None] * MOST_LOOKS + ["a TLS record came in too slowly"]
        pair.transport.is_open = False
