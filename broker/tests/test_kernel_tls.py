"""Kernel TLS: which machine has it, which keys the kernel gets, and what the transport does once the kernel encrypts.

Most tests have a kernel of their own: it keeps the key that it gets, and the client's end of the socket encrypts what
comes as a kernel would. The last tests are for a machine whose kernel has the module `tls`.
"""

from __future__ import annotations

import errno
import io
import os
import select
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from barnabas.broker.log import EventLog
from barnabas.broker.net import kernel_tls
from barnabas.broker.net.errors import Disconnected
from barnabas.broker.net.kernel_tls import (
    MIN_SEND_BUFFER,
    SUITES,
    KernelTls,
    KeyLog,
    Unavailable,
    accepts_full_records,
    crypto_info,
    expand,
)
from barnabas.broker.net.tls import MOST_SENT, PLAIN_BYTES, Sealed, TlsTransport
from barnabas.broker.security.tls import TlsTerms
from barnabas.broker.tests.client import batch_of, fetch_request, frame_of
from barnabas.broker.tests.conftest import until
from barnabas.broker.tests.test_tls import CA, tls
from barnabas.broker.tests.test_tls_transport import CONTENT, ROOM, Pair, file, terms
from barnabas.broker.tests.tls_client import client_context, tls_connect
from barnabas.storage.files import FileSlice, OpenFile
from barnabas.storage.io import Io
from barnabas.wire import portable
from barnabas.wire.types import SizedChunk
from compat_tests.security.certificates import Issued

__all__ = ["file", "terms", "tls"]  # fixtures

pytestmark = pytest.mark.skipif(not portable.has(os, "memfd_create"), reason="only Linux has kernel TLS")

APPLICATION, HANDSHAKE, ALERT = 23, 22, 21


AnyPair = TypeVar("AnyPair", bound=Pair)


def why_not() -> str:
    """The reason why this machine has no kernel TLS; empty if it has."""
    try:
        KernelTls()
    except Unavailable as reason:
        return str(reason)
    return ""


WHY_NOT = why_not()
REAL = pytest.mark.skipif(bool(WHY_NOT), reason=f"no kernel TLS: {WHY_NOT}")


class Keeping:
    """A kernel that keeps the keys that it gets, and encrypts nothing."""

    def __init__(self, *, has_module: bool = True, numbers: tuple[int, ...] = (51, 52, 54)) -> None:
        self.has_module, self.numbers = has_module, numbers
        self.attached = 0
        self.info = b""

    def attach(self, sock: socket.socket) -> None:
        if not self.has_module:
            raise OSError(errno.ENOENT, "No such file or directory")
        self.attached += 1

    def set_key(self, sock: socket.socket, info: bytes) -> None:
        version, number = struct.unpack("=HH", info[:4])
        assert version == 0x0304
        if number not in self.numbers:
            raise OSError(errno.EINVAL, "Invalid argument")
        self.info = info


class Writer:
    """One direction of a connection with TLS_AES_256_GCM_SHA384: makes its records."""

    def __init__(self, key: bytes, iv: bytes) -> None:
        self._key, self._iv, self._number = AESGCM(key), int.from_bytes(iv), 0

    @classmethod
    def of_kernel(cls, info: bytes) -> Writer:
        """What a kernel would write with the struct tls12_crypto_info_aes_gcm_256 that it got."""
        iv, key, salt, number = struct.unpack("8s32s4s8s", info[4:])
        assert number == bytes(8)
        return cls(key, salt + iv)

    @classmethod
    def of_secret(cls, secret: bytes) -> Writer:
        return cls(expand(secret, b"key", 32, "sha384"), expand(secret, b"iv", 12, "sha384"))

    def record(self, kind: int, data: bytes) -> bytes:
        header = struct.pack(">BHH", APPLICATION, 0x0303, len(data) + 17)
        nonce = (self._iv ^ self._number).to_bytes(12)
        self._number += 1
        return header + self._key.encrypt(nonce, data + bytes([kind]), header)


class KernelPair(Pair):
    """A transport whose kernel encrypts; what the kernel would do, is done when the client receives."""

    def __init__(self, terms: TlsTerms, early: bytes = b"", **settings: Any) -> None:
        self.kernel = Keeping()
        self.writer: Writer | None = None
        tls = KernelTls(self.kernel)
        self.kernel.info = b""
        super().__init__(terms, early, tls, **settings)
        if self.transport._is_in_kernel:
            self.writer = Writer.of_kernel(self.kernel.info)

    def pull(self, most: int = 1 << 20) -> bytes:
        if self.writer is None:
            return super().pull(most)
        try:
            data = self.theirs.recv(most)
        except BlockingIOError:
            return b""
        for at in range(0, len(data), PLAIN_BYTES):
            self._incoming.write(self.writer.record(APPLICATION, data[at : at + PLAIN_BYTES]))
        found = b""
        while self._incoming.pending:
            found += self.client.read(1 << 20)
        return found


def client_secret(folder: Path, make: Callable[[str], AnyPair]) -> tuple[AnyPair, bytes]:
    """A pair, and the traffic secret of its client."""
    log = folder / "keys"
    pair = make(str(log))
    lines = [line.split() for line in log.read_text().splitlines()]
    return pair, next(bytes.fromhex(line[2]) for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0")


# --- keys -------------------------------------------------------------------------------------------------------------


def test_keys_follow_from_the_secret_as_in_the_example_of_rfc_8448() -> None:
    secret = bytes.fromhex("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643")
    key, iv = "9f02283b6c9c07efc26bb9f2ac92e356", "cf782b88dd83549aadf1e984"
    assert expand(secret, b"key", 16, "sha256").hex() == key
    assert expand(secret, b"iv", 12, "sha256").hex() == iv
    info = crypto_info(SUITES["TLS_AES_128_GCM_SHA256"], secret)
    assert info == struct.pack("=HH", 0x0304, 51) + bytes.fromhex(iv[8:] + key + iv[:8]) + bytes(8)


def test_each_suite_has_the_size_that_linux_wants() -> None:
    sizes = {name: len(crypto_info(suite, bytes(48))) for name, suite in SUITES.items()}
    assert list(sizes.values()) == [40, 56, 56]


def test_a_key_log_is_open_in_its_block_only() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    before = os.listdir("/proc/self/fd")
    with KeyLog(context) as log:
        assert log.is_open
        path = context.keylog_filename
        assert path is not None
        with open(path, "ab") as written:
            written.write(b"CLIENT_RANDOM 01 02\nSERVER_TRAFFIC_SECRET_0 0102 0a0b\n")
    assert log.secret == b"\x0a\x0b"
    assert context.keylog_filename is None
    assert os.listdir("/proc/self/fd") == before


def test_without_a_file_for_the_key_log_there_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(name: str) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", none_left)
    with KeyLog(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)) as log:
        assert not log.is_open
    assert log.secret is None


# --- clients that want small records ----------------------------------------------------------------------------------


def hello_of(*extensions: tuple[int, bytes]) -> bytes:
    """A record with a client's hello."""
    body = b"".join(struct.pack(">HH", kind, len(data)) + data for kind, data in extensions)
    fields = b"\x03\x03" + bytes(32) + b"\x20" + bytes(32) + b"\0\x02\x13\x02" + b"\x01\0"
    message = fields + struct.pack(">H", len(body)) + body
    message = b"\x01" + len(message).to_bytes(3) + message
    return b"\x16\x03\x01" + struct.pack(">H", len(message)) + message


def test_a_hello_says_whether_the_client_accepts_full_records() -> None:
    usual = (0, b"\0\x0c\0\0\x09localhost"), (43, b"\x02\x03\x04")
    assert accepts_full_records(hello_of(*usual))
    assert not accepts_full_records(hello_of(usual[0], (1, b"\x01"), usual[1]))
    assert not accepts_full_records(hello_of(*usual, (28, b"\x02\0")))
    whole = hello_of(*usual)
    assert accepts_full_records(whole + b"the next record")
    halves = b"\x16\x03\x01\0\x32" + whole[5:55] + b"\x16\x03\x01" + struct.pack(">H", len(whole) - 55) + whole[55:]
    assert not accepts_full_records(halves)
    for size in range(len(whole) - 5):  # extensions that end too early
        assert not accepts_full_records(whole[:3] + struct.pack(">H", size) + whole[5 : 5 + size])
        length = max(size - 4, 0).to_bytes(3)
        assert not accepts_full_records(whole[:3] + struct.pack(">H", size) + b"\x01" + length + whole[9 : 5 + size])


async def test_a_client_that_wants_small_records_stays_in_memory(
    terms: TlsTerms, monkeypatch: pytest.MonkeyPatch
) -> None:
    hellos: list[bytes] = []

    def refuse(record: memoryview) -> bool:
        hellos.append(bytes(record))
        return False

    monkeypatch.setattr("barnabas.broker.net.tls.accepts_full_records", refuse)
    with KernelPair(terms) as pair:
        assert not pair.transport._is_in_kernel
        assert pair.transport.send([b"answer"]) == []
        assert pair.pull() == b"answer"
    (hello,) = hellos
    assert accepts_full_records(hello)


# --- whether this machine has it --------------------------------------------------------------------------------------


def test_a_kernel_without_the_module_has_no_kernel_tls() -> None:
    with pytest.raises(Unavailable, match="modprobe tls"):
        KernelTls(Keeping(has_module=False))


def test_a_kernel_without_a_cipher_of_tls_1_3_has_no_kernel_tls() -> None:
    with pytest.raises(Unavailable, match=r"no cipher of TLS 1\.3"):
        KernelTls(Keeping(numbers=()))


def test_the_suites_are_those_of_the_kernel() -> None:
    assert KernelTls(Keeping(numbers=(52,))).suites == {"TLS_AES_256_GCM_SHA384"}
    assert KernelTls(Keeping()).suites == SUITES.keys()


def test_the_log_says_whether_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    log = EventLog(out)
    assert kernel_tls.find_kernel_tls(False, log) is None
    monkeypatch.setattr(kernel_tls, "Linux", lambda: Keeping(has_module=False))
    assert kernel_tls.find_kernel_tls(True, log) is None
    monkeypatch.setattr(kernel_tls, "Linux", lambda: Keeping(numbers=(51,)))
    assert kernel_tls.find_kernel_tls(True, log) is not None
    off, missing, used = (line.partition(" info ")[2] for line in out.getvalue().splitlines())
    assert off == 'tls.kernel used=False reason="barnabas.ssl.kernel.tls.enable=false"'
    assert missing.startswith('tls.kernel used=False reason="the kernel')
    assert used == "tls.kernel used=True suites=TLS_AES_128_GCM_SHA256"


async def test_a_broker_says_at_its_start_whether_it_uses_kernel_tls(tls: Any) -> None:
    async with tls(barnabas_ssl_kernel_tls_enable="false") as running:
        assert 'tls.kernel used=False reason="barnabas.ssl.kernel.tls.enable=false"' in running.log


async def test_a_broker_offers_each_connection_to_the_kernel(tls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[tuple[str, int]] = []

    def refuse(self: KernelTls, sock: socket.socket, suite: str, secret: bytes) -> bool:
        offered.append((suite, len(secret)))
        return False

    monkeypatch.setattr(kernel_tls, "Linux", Keeping)
    monkeypatch.setattr(KernelTls, "take_over", refuse)
    async with tls() as running, await tls_connect(running.port, client_context(CA)) as client:
        await client.create_topic("t")
    assert offered == [("TLS_AES_256_GCM_SHA384", 48)]


# --- the transport ----------------------------------------------------------------------------------------------------


async def test_the_kernel_sends_what_follows_the_handshake(terms: TlsTerms, file: OpenFile) -> None:
    with KernelPair(terms) as pair:
        assert pair.transport._is_in_kernel
        assert pair.transport._secret == b""
        assert pair.transport._terms.context.keylog_filename is None
        chunks: list[SizedChunk] = [b"head", FileSlice(Io(), file, 0, 500_000, cached=True), b"tail"]
        got = b""
        while chunks:
            chunks = pair.transport.send(chunks)
            got += pair.pull()
        assert got == b"head" + CONTENT[:500_000] + b"tail"
        pair.client.write(b"a request")
        pair.push()
        assert pair.transport.receive(ROOM) == 9


async def test_requests_may_come_with_the_end_of_the_handshake(terms: TlsTerms) -> None:
    with KernelPair(terms, CONTENT[:100_000]) as pair:
        got = b""
        while len(got) < 100_000:
            count = pair.transport.receive(ROOM)
            assert count
            got += ROOM[:count]
        assert got == CONTENT[:100_000]
        assert pair.transport.send([b"answer"]) == []
        assert pair.pull() == b"answer"


async def test_tls_1_2_stays_in_memory(terms: TlsTerms) -> None:
    with KernelPair(terms, maximum_version=ssl.TLSVersion.TLSv1_2) as pair:
        assert pair.kernel.info == b""
        assert pair.transport.send([b"answer"]) == []
        assert pair.pull() == b"answer"


@pytest.mark.parametrize("failing", ["attach", "set_key"])
async def test_a_socket_that_the_kernel_refuses_stays_in_memory(
    terms: TlsTerms, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Keeping, sock: socket.socket, info: bytes = b"") -> None:
        if sock.family == socket.AF_UNIX:  # the pair's
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    monkeypatch.setattr(Keeping, failing, refuse)
    with KernelPair(terms) as pair:
        assert not pair.transport._is_in_kernel
        assert pair.transport.send([b"answer"]) == []
        assert pair.pull() == b"answer"


async def test_a_socket_with_a_small_send_buffer_stays_in_memory(
    terms: TlsTerms, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(self: Pair) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MIN_SEND_BUFFER // 2 - 1)  # Linux doubles it
        return ours, theirs

    monkeypatch.setattr(Pair, "sockets", small)
    with KernelPair(terms) as pair:
        assert not pair.transport._is_in_kernel
        assert pair.transport.send([b"answer"]) == []
        assert pair.pull() == b"answer"


async def test_the_handshake_is_sent_before_the_kernel_takes_over(terms: TlsTerms) -> None:
    with KernelPair(terms) as pair:
        transport = pair.transport
        transport._is_in_kernel, transport._secret = False, bytes(48)
        transport._unsent = [b"of the handshake"]
        transport._hand_over(transport._ssl)  # type: ignore[arg-type]
        assert not transport._is_in_kernel
        transport._unsent = []


async def test_a_key_log_that_cannot_be_written_ends_the_connection(
    terms: TlsTerms, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: TlsTransport, tls: ssl.SSLObject) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    told: list[str] = []
    monkeypatch.setattr(TlsTransport, "_do_handshake", fail)
    monkeypatch.setattr(KernelPair, "tell", lambda pair, event, reason: told.append(reason))
    with pytest.raises(Disconnected):
        KernelPair(terms)
    assert told == ["[Errno 28] No space left on device"]


async def test_a_mark_of_the_handshakes_own_bytes_is_not_sent(terms: TlsTerms) -> None:
    with KernelPair(terms) as pair:
        assert pair.transport.send([Sealed(700), b"answer"]) == []
        assert pair.pull() == b"answer"


async def test_one_call_sends_some_of_much(terms: TlsTerms, file: OpenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    def take(self: FileSlice, sock: socket.socket) -> int:
        sent.append(len(self))
        return len(self)

    monkeypatch.setattr(FileSlice, "send", take)
    with KernelPair(terms) as pair:
        size = 1_500_000
        left = pair.transport.send([FileSlice(Io(), file, 0, size, cached=True) for _ in range(2)])
        assert sum(sent) == MOST_SENT
        assert sum(map(len, left)) == 2 * size - MOST_SENT
        assert pair.transport.send(left) == []
        assert sum(sent) == 2 * size


async def test_the_end_is_told_on_both_sides(terms: TlsTerms) -> None:
    with KernelPair(terms) as pair:
        assert pair.writer is not None
        pair.transport.close()
        told = pair.theirs.recv(100)
        pair._incoming.write(pair.writer.record(ALERT, told))
        assert pair.client.read(1) == b""
    with KernelPair(terms) as pair:
        with pytest.raises(ssl.SSLWantReadError):
            pair.client.unwrap()
        pair.push()
        assert pair.transport.receive(ROOM) == 0


async def test_openssl_sends_nothing_once_the_kernel_encrypts(terms: TlsTerms) -> None:
    with KernelPair(terms) as pair:
        pair.client.write(b"hello")
        data = bytearray(pair._outgoing.read())
        data[-1] ^= 1
        pair.theirs.send(data)
        with pytest.raises(Disconnected, match=r"bad record mac|record layer failure"):
            pair.transport.receive(ROOM)
        with pytest.raises(BlockingIOError):
            pair.theirs.recv(1)


@pytest.mark.parametrize("with_data", [False, True], ids=["alone", "with data"])
@pytest.mark.parametrize("asks", [False, True], ids=["of the client only", "of both sides"])
async def test_new_keys(terms: TlsTerms, tmp_path: Path, *, asks: bool, with_data: bool) -> None:
    pair, secret = client_secret(tmp_path, lambda log: KernelPair(terms, keylog_filename=log))
    with pair:
        update = bytes([24, 0, 0, 1, asks])  # KeyUpdate: RFC 8446, 4.6.3
        data = Writer.of_secret(secret).record(HANDSHAKE, update)
        if with_data:
            data += Writer.of_secret(expand(secret, b"traffic upd", 48, "sha384")).record(APPLICATION, b"data")
        pair.theirs.send(data)
        if asks:
            with pytest.raises(Disconnected, match="KeyUpdate"):
                pair.transport.receive(ROOM)
        else:
            assert pair.transport.receive(ROOM) == (4 if with_data else None)
            assert pair.transport.send([b"answer"]) == []
            assert pair.pull() == b"answer"


# --- a kernel with the module -----------------------------------------------------------------------------------------


class RealPair(Pair):
    """A transport whose kernel encrypts, over TCP."""

    #: 0 for the kernel's own choice.
    send_buffer = 0

    def __init__(self, terms: TlsTerms, **settings: Any) -> None:
        super().__init__(terms, kernel=KernelTls(), **settings)
        assert self.transport._is_in_kernel

    def sockets(self) -> tuple[socket.socket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            theirs = socket.create_connection(listening.getsockname())
            ours = listening.accept()[0]
        if self.send_buffer:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer // 2)  # Linux doubles it
        return ours, theirs

    def receive(self) -> int | None:
        assert select.select([self.transport], [], [], 30)[0]
        return self.transport.receive(ROOM)

    def assert_closed(self) -> None:
        """The client is told that nothing more comes."""
        self.transport.close()
        self.theirs.setblocking(True)
        self._incoming.write(self.theirs.recv(1000))
        assert self.client.read(1) == b""


@REAL
@pytest.mark.parametrize("at_a_time", [3000, 1 << 20])
@pytest.mark.parametrize("send_buffer", [0, MIN_SEND_BUFFER], ids=["usual buffer", "smallest buffer"])
async def test_the_kernels_records_are_those_that_the_client_expects(
    terms: TlsTerms, file: OpenFile, at_a_time: int, send_buffer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealPair, "send_buffer", send_buffer)
    chunks: list[SizedChunk] = []
    expected = b""
    for start, size in ((0, 5), (0, 900_000), (77, 40_000), (5, 16 << 10), (5, (16 << 10) + 1), (1000, 1)):
        chunks += [b"head", FileSlice(Io(), file, start, size, cached=True), b"t" * size]
        expected += b"head" + CONTENT[start : start + size] + b"t" * size
    with RealPair(terms) as pair:
        got = b""
        while len(got) < len(expected):
            chunks = pair.transport.send(chunks)
            got += pair.pull(at_a_time)
        assert chunks == []
        assert got == expected
        pair.client.write(b"a request")
        pair.push()
        assert pair.receive() == 9
        pair.assert_closed()


@REAL
@pytest.mark.parametrize("own", [None, CA.issue("alice")], ids=["unnamed", "with a certificate"])
async def test_a_client_fetches_what_it_produced(tls: Any, own: Issued | None) -> None:
    async with tls(ssl_client_auth="requested") as running:
        async with await tls_connect(running.port, client_context(CA, own)) as client:
            (connection,) = running.node.connections
            await client.create_topic("t")
            assert connection._transport._is_in_kernel
            large = batch_of(bytes(range(256)) * 3000)
            for _ in range(20):
                assert (await client.produce("t", large)).error_code == 0
            fetched = await client.fetch("t", max_bytes=1 << 26, partition_max_bytes=1 << 26)
            data, size = bytes(fetched.records), len(large)
            assert len(data) == 20 * size
            # From the CRC on, a batch is stored as it came.
            assert all(data[at + 17 : at + size] == large[17:] for at in range(0, len(data), size))
        assert "tls.kernel used=True" in running.log
        await until(lambda: not len(running.node.connections))
        async with await tls_connect(running.port, client_context(CA, own)) as client:
            await client.send_bytes(frame_of(fetch_request("t", max_bytes=1 << 26, partition_max_bytes=1 << 26), 12))
        await until(lambda: not len(running.node.connections))  # it left in the middle of the answer


@REAL
async def test_a_client_that_asks_for_new_keys_is_closed(terms: TlsTerms, tmp_path: Path) -> None:
    pair, secret = client_secret(tmp_path, lambda log: RealPair(terms, keylog_filename=log))
    with pair:
        assert pair.transport.send([b"answer"]) == []
        assert pair.pull() == b"answer"
        pair.theirs.sendall(Writer.of_secret(secret).record(HANDSHAKE, bytes([24, 0, 0, 1, 1])))
        with pytest.raises(Disconnected, match="KeyUpdate"):
            pair.receive()
        pair.assert_closed()
