"""A port that accepts connections and never answers: the user is told soon, and may wait."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

import pytest

from barnabas.client import connection, silence
from barnabas.client.connection import Address, Connection
from barnabas.client.errors import LostError
from barnabas.client.security import Security


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the user is told; the client's patience is short."""
    lines: list[str] = []
    monkeypatch.setattr(silence, "SECONDS", 0.05)
    monkeypatch.setattr(connection, "TIMEOUT_SECONDS", 0.15)
    silence.tell_with(lines.append)
    yield lines
    monkeypatch.setattr(silence, "_tell", None)


@pytest.fixture
def mute() -> Iterator[Address]:
    """An address where the kernel accepts connections and nobody reads from them."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(5)
        yield Address("127.0.0.1", sock.getsockname()[1])


def test_it_is_told_once_and_the_client_gives_up_later(told: list[str], mute: Address) -> None:
    for _ in range(2):
        with pytest.raises(LostError, match="timed out"):
            Connection(mute)
    assert told == [
        f"{mute} has not answered for 0.05 s: is it a broker's port? Still waiting; Ctrl-C ends it.",
    ]


def test_under_tls_too(told: list[str], mute: Address) -> None:
    security = Security(context=ssl.create_default_context())
    with pytest.raises(LostError, match="no TLS connection"):
        Connection(mute, security)
    assert len(told) == 1
    assert "has not answered" in told[0]
