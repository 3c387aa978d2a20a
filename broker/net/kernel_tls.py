"""Kernel TLS: after the handshake, the kernel encrypts what a connection sends, and `sendfile` works as without TLS.

    handshake    OpenSSL, in memory: `broker.net.tls`
    sent bytes   socket.send, sendmsg, sendfile -> the kernel encrypts
    received     OpenSSL decrypts, in memory, as without kernel TLS

The kernel needs the key with which OpenSSL would encrypt. OpenSSL derives it from a secret of the handshake, and gives
out this secret only as a line of a key log. So for the steps of a handshake that make the secret, the key log of the
context is a file in memory, which has no name and ends with the step.

Only with TLS 1.3: there the number of the server's next record is known. It is 0, because the broker sends no session
tickets. From then on OpenSSL must send nothing, as two writers with one key would use a number twice.

Only for clients that accept records of any size: the kernel makes records of up to 16 KiB.

Source: RFC 8446, 4.1.2 (the client's hello), 7.1 and 7.3 (keys from the secret), 4.6.3 (KeyUpdate); RFC 6066, 4 and RFC
8449 (clients that want small records); Linux, include/uapi/linux/tls.h and Documentation/networking/tls.rst; NSS's key
log format; docs/decisions/0047-tls-in-memory.md.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import ssl
import struct
from typing import NamedTuple, Protocol

from barnabas.broker.log import EventLog
from barnabas.broker.settings.ssl_keys import KERNEL_TLS
from barnabas.wire import portable

_TCP_ULP = 31
_SOL_TLS, _TLS_TX, _TLS_SET_RECORD_TYPE = 282, 1, 1
_TLS_1_3 = 0x0304
_ALERT = 21
_CLOSE_NOTIFY = b"\x01\x00"
_IV_SIZE = 12
# Extensions with which a client asks for smaller records: max_fragment_length, record_size_limit.
_SMALL_RECORDS = (1, 28)
# The smallest send buffer with which the kernel encrypts. The buffer can hold a record of 16 KiB that is sent in part,
# the next record, and the data of which that is made. Linux calls a socket writable when a third of its buffer is free,
# so a smaller buffer could wait forever: Linux 6.1 did with 46,080 bytes, and did not with 55,000.
MIN_SEND_BUFFER = 80 << 10
# The line of the key log with the secret from which the keys of the server's records come.
_LABEL = b"SERVER_TRAFFIC_SECRET_0"


class Suite(NamedTuple):
    """What the kernel needs to know of a cipher suite."""

    number: int  # TLS_CIPHER_... of linux/tls.h
    digest: str  # the hash of the suite
    key_size: int
    salt_size: int  # how many bytes of the IV the kernel calls the salt


SUITES = {
    "TLS_AES_128_GCM_SHA256": Suite(51, "sha256", 16, 4),
    "TLS_AES_256_GCM_SHA384": Suite(52, "sha384", 32, 4),
    "TLS_CHACHA20_POLY1305_SHA256": Suite(54, "sha256", 32, 0),
}


class Unavailable(Exception):
    """The kernel does not encrypt; the message is the reason."""


class Kernel(Protocol):
    """The two calls with which the kernel takes over a socket. Both raise OSError."""

    def attach(self, sock: socket.socket) -> None:
        """Give a connected TCP socket kernel TLS. It changes nothing yet."""

    def set_key(self, sock: socket.socket, info: bytes) -> None:
        """Encrypt everything that is sent from now on. `info` is a struct tls12_crypto_info_... of linux/tls.h."""


class Linux:
    def attach(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_ULP, b"tls")

    def set_key(self, sock: socket.socket, info: bytes) -> None:
        sock.setsockopt(_SOL_TLS, _TLS_TX, info)


class KernelTls:
    """Kernel TLS as this machine has it."""

    def __init__(self, kernel: Kernel | None = None) -> None:
        """Finds out what the kernel encrypts, with sockets over loopback. Raises Unavailable."""
        self._kernel = kernel or Linux()
        if not portable.has(os, "memfd_create"):
            raise Unavailable("only Linux has it")
        with KeyLog(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)) as log:
            if not log.is_open:
                raise Unavailable("OpenSSL cannot write its secrets to a file in memory")
        try:
            self.suites = frozenset(name for name in SUITES if self._encrypts(SUITES[name]))
        except OSError as error:
            raise Unavailable(f"it cannot be tried over loopback: {error.strerror}") from None
        if not self.suites:
            raise Unavailable("the kernel's module tls has no cipher of TLS 1.3")

    def _encrypts(self, suite: Suite) -> bool:
        """Whether the kernel has a suite. Raises Unavailable if it has none, OSError if it cannot be asked."""
        with contextlib.ExitStack() as stack:
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            sock = stack.enter_context(socket.create_connection(listening.getsockname()))
            try:
                self._kernel.attach(sock)
            except OSError as error:
                raise Unavailable(f"the kernel's module tls is not loaded ({error.strerror}): modprobe tls") from None
            try:
                self._kernel.set_key(sock, crypto_info(suite, bytes(48)))
            except OSError:
                return False
        return True

    def take_over(self, sock: socket.socket, suite: str, secret: bytes) -> bool:
        """Encrypt everything that is sent from now on; whether the kernel does. If not, the socket is unchanged.

        `secret` is the server's traffic secret of the handshake. All records of the handshake must have been sent.
        """
        if suite not in self.suites or sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < MIN_SEND_BUFFER:
            return False
        try:
            self._kernel.attach(sock)
            self._kernel.set_key(sock, crypto_info(SUITES[suite], secret))
        except OSError:
            return False
        return True


def find_kernel_tls(is_enabled: bool, log: EventLog) -> KernelTls | None:
    """Kernel TLS, if it may be used and this machine has it; logs which, and why not."""
    try:
        if not is_enabled:
            raise Unavailable(f"{KERNEL_TLS}=false")
        found = KernelTls()
    except Unavailable as reason:
        log.info("tls.kernel", used=False, reason=reason)
        return None
    log.info("tls.kernel", used=True, suites=",".join(sorted(found.suites)))
    return found


def send_close_notify(sock: socket.socket) -> None:
    """Tell the client that nothing more comes, on a socket that the kernel has taken over. Raises OSError."""
    record_type = (_SOL_TLS, _TLS_SET_RECORD_TYPE, bytes([_ALERT]))
    sock.sendmsg([_CLOSE_NOTIFY], [record_type])


class KeyLog:
    """A file in memory to which OpenSSL writes the secrets of a context's handshakes until the end of a `with` block.

    If no file can be opened, there is no secret.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._file = -1
        #: The server's traffic secret, if the block has made it.
        self.secret: bytes | None = None

    @property
    def is_open(self) -> bool:
        return self._file >= 0

    def __enter__(self) -> KeyLog:
        try:
            self._file = os.memfd_create("key log")
            self._context.keylog_filename = f"/proc/self/fd/{self._file}"
        except OSError:
            self._close()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_open:
            self._context.keylog_filename = None  # type: ignore[assignment]
            self.secret = secret_in(os.pread(self._file, 4096, 0))
            self._close()

    def _close(self) -> None:
        if self.is_open:
            os.close(self._file)
            self._file = -1


def secret_in(log: bytes) -> bytes | None:
    """The server's traffic secret in a key log, whose lines are LABEL CLIENT_RANDOM SECRET."""
    for line in log.splitlines():
        label, *rest = line.split()
        if label == _LABEL:
            return bytes.fromhex(rest[1].decode())
    return None


def accepts_full_records(record: bytes | memoryview) -> bool:
    """Whether a client's hello asks for no smaller records than usual. The hello must be in this one record."""
    if 4 + int.from_bytes(record[6:9]) != int.from_bytes(record[3:5]):
        return False
    try:
        at = 5 + 4 + 2 + 32  # the headers of record and message, version, random bytes
        at += 1 + record[at]  # session id
        at += 2 + int.from_bytes(record[at : at + 2])  # suites
        at += 1 + record[at]  # compression methods
        end = at + 2 + int.from_bytes(record[at : at + 2])
        at += 2
        while at < end:
            extension, size = struct.unpack_from(">HH", record, at)
            if extension in _SMALL_RECORDS:
                return False
            at += 4 + size
    except (IndexError, struct.error):
        return False
    return at == 5 + int.from_bytes(record[3:5])


def crypto_info(suite: Suite, secret: bytes) -> bytes:
    """The struct tls12_crypto_info_... with the key and IV that follow from a traffic secret, and record number 0."""
    key, iv = expand(secret, b"key", suite.key_size, suite.digest), expand(secret, b"iv", _IV_SIZE, suite.digest)
    salt, rest = iv[: suite.salt_size], iv[suite.salt_size :]
    return struct.pack("=HH", _TLS_1_3, suite.number) + rest + key + salt + bytes(8)


def expand(secret: bytes, label: bytes, size: int, digest: str) -> bytes:
    """HKDF-Expand-Label without context (RFC 8446, 7.1); `size` is at most the digest's."""
    label = b"tls13 " + label
    return hmac.digest(secret, struct.pack(">HB", size, len(label)) + label + b"\0\x01", digest)[:size]
