"""The TLS transport by itself: all bytes arrive in order, however few a socket accepts and a client sends at a time."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.net.errors import Disconnected
from barnabas.broker.net.handshakes import Handshakes
from barnabas.broker.net.kernel_tls import KernelTls
from barnabas.broker.net.tls import MAX_QUIET, MOST_RECORDS, MOST_SENT, RECORDS_AT_ONCE, Sealed, TlsTransport
from barnabas.broker.net.transport import GATHER_BYTES
from barnabas.broker.security.principal_mapping import PrincipalMapping
from barnabas.broker.security.tls import TlsTerms
from barnabas.broker.tests.test_handshakes import Passes
from barnabas.broker.tests.tls_client import client_context
from barnabas.broker.workers import Workers
from barnabas.storage.files import FileSlice, OpenFile
from barnabas.storage.io import Io
from barnabas.wire.types import SizedChunk
from compat_tests.security.certificates import Authority

CA = Authority()
CONTENT = bytes(n * 7 % 251 for n in range(1 << 20))
ROOM = memoryview(bytearray(256 << 10))


@pytest.fixture(scope="module")
def terms(tmp_path_factory: pytest.TempPathFactory) -> TlsTerms:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    context.load_cert_chain(CA.issue().pem(tmp_path_factory.mktemp("certificates") / "broker.pem"))
    return TlsTerms(context, PrincipalMapping("DEFAULT"), names_clients=True)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> OpenFile:
    path: Path = tmp_path_factory.mktemp("log") / "x.log"
    path.write_bytes(CONTENT)
    return OpenFile(Io(), str(path), os.O_RDONLY)


class Pair:
    """A transport after its handshake, and a client in memory at the other end of its socket."""

    def __init__(self, terms: TlsTerms, early: bytes = b"", kernel: KernelTls | None = None, **settings: Any) -> None:
        """`early` is sent by the client together with the end of its handshake."""
        ours, self.theirs = self.sockets()
        for each in (ours, self.theirs):
            each.setblocking(False)
        poller = Passes()
        handshakes = Handshakes(poller)  # type: ignore[arg-type]
        self.transport = TlsTransport(ours, Workers(), "a", terms, handshakes, self.tell, kernel)
        self.sends = 0
        self.transport.attach(lambda _: None, lambda: None, self._send_soon)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = client_context(CA, **settings)
        self.client = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        while not self._is_done():
            self.push()
            self.transport.receive(ROOM)
            poller.all()
            self.pull()
        if early:
            self.client.write(early)
        self.push()
        while not self.transport.is_open:
            self.transport.receive(ROOM)
            poller.all()

    def sockets(self) -> tuple[socket.socket, socket.socket]:
        """The transport's socket, and the client's."""
        return socket.socketpair()

    def _is_done(self) -> bool:
        try:
            self.client.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def tell(self, event: str, reason: str) -> None:
        raise AssertionError(reason)

    def _send_soon(self) -> None:
        self.sends += 1

    def push(self) -> None:
        """Send what the client has to send, as far as the socket accepts it."""
        self.theirs.setblocking(True)
        self.theirs.sendall(self._outgoing.read())
        self.theirs.setblocking(False)

    def pull(self, most: int = 1 << 20) -> bytes:
        """Decrypt what the socket has."""
        try:
            self._incoming.write(self.theirs.recv(most))
        except BlockingIOError:
            return b""
        found = b""
        while True:
            try:
                found += self.client.read(1 << 20)
            except ssl.SSLWantReadError:
                return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.theirs.close()
        self.transport.close()


VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
PIECES = st.one_of(st.binary(min_size=1, max_size=3000), st.tuples(st.integers(0, 4000), st.integers(1, 300_000)))


@settings(max_examples=40, deadline=None)
@given(st.lists(PIECES, max_size=8), st.integers(1000, 100_000))
async def test_answers_arrive_however_little_the_socket_takes(
    terms: TlsTerms, file: OpenFile, pieces: list[bytes | tuple[int, int]], at_a_time: int
) -> None:
    chunks: list[SizedChunk] = []
    expected = b""
    for piece in pieces:
        if isinstance(piece, bytes):
            chunks.append(piece)
            expected += piece
        else:
            start, size = piece
            chunks.append(FileSlice(Io(), file, start, size, cached=True))
            expected += CONTENT[start : start + size]
    with Pair(terms) as pair:
        pair.transport._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        got = b""
        while len(got) < len(expected):
            size_before = sum(map(len, chunks))
            chunks = pair.transport.send(chunks)
            assert all(not isinstance(each, Sealed) for each in chunks[1:])
            assert sum(map(len, chunks)) <= size_before + 4096
            got += pair.pull(at_a_time)
        assert chunks == []
    assert got == expected


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.binary(min_size=1, max_size=5000), min_size=1, max_size=20),
    st.integers(1, 4000),
    st.lists(st.integers(1, 6000), min_size=1, max_size=5),
)
async def test_requests_arrive_however_they_are_cut(
    terms: TlsTerms, records: list[bytes], at_a_time: int, rooms: list[int]
) -> None:
    with Pair(terms) as pair:
        for record in records:
            pair.client.write(record)
        data, got, turn = pair._outgoing.read(), b"", 0
        for at in range(0, len(data), at_a_time):
            pair.theirs.send(data[at : at + at_a_time])
            while True:
                turn += 1
                room = ROOM[: rooms[turn % len(rooms)]]
                count = pair.transport.receive(room)
                if not count:
                    assert not pair.transport.has_more
                    break
                got += room[:count]
        assert got == b"".join(records)


async def test_requests_may_come_with_the_end_of_the_handshake(terms: TlsTerms) -> None:
    early = CONTENT[:100_000]  # more than a whole handshake may have
    with Pair(terms, early) as pair:
        got = b""
        while len(got) < len(early):
            count = pair.transport.receive(ROOM)
            assert count
            got += ROOM[:count]
        assert got == early


@VERSIONS
async def test_one_call_decrypts_some_records_and_says_that_there_are_more(
    terms: TlsTerms, version: ssl.TLSVersion
) -> None:
    with Pair(terms, minimum_version=version, maximum_version=version) as pair:
        for _ in range(MOST_RECORDS * 2):
            pair.client.write(b"x")
        pair.push()
        assert pair.transport.receive(ROOM) == MOST_RECORDS
        assert pair.transport.has_more
        assert pair.transport.receive(ROOM) == MOST_RECORDS
        assert not pair.transport.has_more
        assert pair.transport.receive(ROOM) is None


async def test_one_call_encrypts_some_of_much(terms: TlsTerms, file: OpenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    with Pair(terms) as pair:
        monkeypatch.setattr(TlsTransport, "_flush", lambda transport: not transport._unsent.clear())
        left = pair.transport.send([FileSlice(Io(), file, 0, 1 << 20, cached=True) for _ in range(8)])
        assert sum(map(len, left)) == (8 << 20) - MOST_SENT


async def test_a_client_that_does_not_read_has_little_in_memory(terms: TlsTerms, file: OpenFile) -> None:
    with Pair(terms) as pair:
        left = pair.transport.send([b"head", FileSlice(Io(), file, 0, 1 << 20, cached=True)])
        for _ in range(10):
            left = pair.transport.send(left)
        assert isinstance(left[0], Sealed)
        assert len(left[0]) <= GATHER_BYTES + (8 << 10)
        assert isinstance(left[1], FileSlice)


async def test_cold_log_data_is_left_to_a_thread(terms: TlsTerms, file: OpenFile) -> None:
    class Cold(FileSlice):
        def look_cached(self) -> bool:
            return False

    with Pair(terms) as pair:
        cold = Cold(Io(), file, 0, 1000)
        assert pair.transport.send([b"head", cold, b"tail"]) == [cold, b"tail"]
        assert pair.pull() == b"head"


async def test_the_end_is_told_on_both_sides(terms: TlsTerms) -> None:
    with Pair(terms) as pair:
        pair.client.write(b"last")
        with pytest.raises(ssl.SSLWantReadError):
            pair.client.unwrap()
        pair.push()
        assert pair.transport.receive(ROOM) == 4
        assert pair.transport.has_more
        assert pair.transport.receive(ROOM) == 0
    with Pair(terms) as pair:
        pair.transport.close()
        pair._incoming.write(pair.theirs.recv(1000))
        assert pair.client.read(1) == b""


async def test_a_record_that_was_changed_is_the_end(terms: TlsTerms) -> None:
    with Pair(terms) as pair:
        pair.client.write(b"hello")
        data = bytearray(pair._outgoing.read())
        data[-1] ^= 1
        pair.theirs.send(data)
        with pytest.raises(Disconnected, match=r"bad record mac|record layer failure"):
            pair.transport.receive(ROOM)


class Quiet:
    """Acts like OpenSSL when no record contains data."""

    def __init__(self, incoming: ssl.MemoryBIO) -> None:
        self._incoming = incoming

    def read(self, size: int, room: memoryview) -> int:
        self._incoming.read()
        raise ssl.SSLWantReadError

    def pending(self) -> int:
        return 0


async def test_records_without_data_are_the_end_after_some(terms: TlsTerms) -> None:
    with Pair(terms) as pair:
        real, pair.transport._ssl = pair.transport._ssl, Quiet(pair.transport._incoming)  # type: ignore[assignment]
        record = b"\x17\x03\x03\x00\x05quiet"
        pair.theirs.send(record * MAX_QUIET * RECORDS_AT_ONCE)
        assert pair.transport.receive(ROOM) is None
        pair.theirs.send(record)
        with pytest.raises(Disconnected, match="without data"):
            pair.transport.receive(ROOM)
        pair.transport._ssl = real
