"""A connection under TLS 1.2 or 1.3: a handshake, then the bytes of the same requests and answers.

    socket -> records, whole -> OpenSSL -> requests          answers, log data -> OpenSSL -> records -> socket

OpenSSL works on memory and never sees the socket. It gets only complete records, one at a time. So an incomplete record
stays in our buffer, where it is counted; OpenSSL holds one record per direction for a connection; and one recv and one
send move many records.

Log data is read from its file as the socket takes it, `GATHER_BYTES` at a time. Encrypted bytes that are not sent yet
stay in front of the answers as `Sealed`, as a record cannot be taken back. If the kernel has TLS, it encrypts instead
once the handshake is done (`broker.net.kernel_tls`), and log data goes from file to socket.

Until the handshake is done, a stranger has nothing but its connection. OpenSSL is called only when the first record is
complete and it is this connection's turn (`broker.net.handshakes`). Bytes, records and time are bounded.

Source: RFC 8446 and RFC 5246, the record layer; docs/decisions/0047-tls-in-memory.md.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

import trio

from barnabas.broker.net.errors import Disconnected
from barnabas.broker.net.handshakes import SECONDS, Handshakes
from barnabas.broker.net.kernel_tls import KernelTls, KeyLog, accepts_full_records, send_close_notify
from barnabas.broker.net.transport import GATHER_BYTES, IN_MEMORY, is_cold, send_some
from barnabas.broker.security.principal_mapping import NoRuleFits
from barnabas.broker.security.principals import Principal
from barnabas.broker.security.tls import TlsTerms
from barnabas.broker.workers import Workers
from barnabas.client.keystores.der import DerError
from barnabas.wire.text import visible
from barnabas.wire.types import SizedChunk

# A record: type, version, length, and at most this many bytes (RFC 5246, 6.2.3: encryption may add 2048).
HEADER = 5
MAX_CONTENT = (16 << 10) + 2048
MAX_RECORD = HEADER + MAX_CONTENT
# The most data in one record.
PLAIN_BYTES = 16 << 10
_ALERT, _HANDSHAKE, _APPLICATION = 21, 22, 23
_TYPES = frozenset((20, _ALERT, _HANDSHAKE, _APPLICATION))
# The most bytes of a handshake: a client sends its hello, its certificates and little else.
MAX_HANDSHAKE_BYTES = 64 << 10
MAX_HANDSHAKE_RECORDS = 64
# The most records that one call decrypts: full ones fill the room earlier, and this many small ones take little time.
MOST_RECORDS = 256
RECORDS_AT_ONCE = 16
# How often in a row OpenSSL may get records, 16 at most, that bring no data, such as key changes.
MAX_QUIET = 4
# The most bytes that one call encrypts, so that other clients have their turn even if this one reads very fast.
MOST_SENT = 2 << 20
# How often in a row `overdue` may find the same record unfinished: half a minute.
MOST_LOOKS = 60
RECEIVE_BYTES = 256 << 10

# Shared by all connections, as nothing is awaited between a recv and the end of its records.
_shared = memoryview(bytearray(RECEIVE_BYTES + MAX_RECORD))
_NOTHING = memoryview(b"")


class Tell(Protocol):
    """Called with the reason why a client was refused; may drop some calls."""

    def __call__(self, event: str, reason: str) -> None: ...


class Sealed:
    """Encrypted bytes of answers that wait in the transport until the socket takes them."""

    __slots__ = ("_size",)
    cached = True

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


class TlsTransport:
    """The server's side of one TLS connection."""

    __slots__ = (
        "_deadline",
        "_failure",
        "_handshakes",
        "_held",
        "_incoming",
        "_is_ended",
        "_is_in_kernel",
        "_is_waited_for",
        "_kernel",
        "_known_as",
        "_looks",
        "_outgoing",
        "_quiet",
        "_read_soon",
        "_ready_since",
        "_received",
        "_records",
        "_secret",
        "_send_soon",
        "_sock",
        "_ssl",
        "_tell",
        "_terms",
        "_unsent",
        "_workers",
        "client",
        "has_more",
        "is_open",
    )

    def __init__(
        self,
        sock: socket.socket,
        workers: Workers,
        client: str,
        terms: TlsTerms,
        handshakes: Handshakes,
        tell: Tell,
        kernel: KernelTls | None = None,
    ) -> None:
        """`kernel` encrypts what is sent after the handshake, if it can."""
        self._kernel, self._secret, self._is_in_kernel = kernel, b"", False
        self._sock, self._workers, self.client = sock, workers, client
        self._terms, self._handshakes, self._tell = terms, handshakes, tell
        self._ssl: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._held = _NOTHING  # received, not yet passed to OpenSSL
        self._unsent: list[memoryview | bytes] = []  # encrypted, not yet taken by the socket
        self.is_open = self._is_ended = self._is_waited_for = False
        self._failure: Disconnected | None = None
        self._deadline = trio.current_time() + SECONDS
        self._ready_since: float | None = None  # since when it waits for its turn
        self._received = self._records = self._quiet = self._looks = 0
        self.has_more = False

    def attach(
        self, known_as: Callable[[Principal], None], read_soon: Callable[[], None], send_soon: Callable[[], None]
    ) -> None:
        """Attach the connection that uses this transport: how it gets the client, and how it is woken."""
        self._known_as, self._read_soon, self._send_soon = known_as, read_soon, send_soon

    def fileno(self) -> int:
        return self._sock.fileno()

    def overdue(self, now: float) -> str | None:
        if not self.is_open:
            if self._ready_since is None and now > self._deadline:
                self._tell("tls.failed", reason=f"the handshake was not done after {SECONDS:g} s")
                return ""
            return None
        if not self._held or self.has_more:
            self._looks = 0
        else:
            self._looks += 1
        return "a TLS record came in too slowly" if self._looks > MOST_LOOKS else None

    def close(self) -> None:
        self._handshakes.ended(self)
        if self._is_in_kernel:
            with contextlib.suppress(OSError):
                send_close_notify(self._sock)
        elif self.is_open and self._ssl is not None and not self._unsent:
            with contextlib.suppress(ssl.SSLError, OSError, Disconnected):
                self._ssl.unwrap()  # sends close_notify, and does not wait for the answer
            with contextlib.suppress(OSError, Disconnected):
                self._flush()
        if self._is_waited_for:
            trio.lowlevel.notify_closing(self._sock)
        self._sock.close()
        self._held = _NOTHING

    # --- the handshake ------------------------------------------------------------------------------------------------

    def _receive_handshake(self) -> None:
        """Receive bytes of the handshake's next record; ask for a turn once it is complete."""
        if self._ready_since is not None and self._ssl is not None:
            return  # its turn comes soon, and requests may follow the end of the handshake
        size = self._receive_some(_shared[:MAX_RECORD])
        if size is None:
            return
        if size == 0:
            raise Disconnected("closed by the client in its TLS handshake" if self._received else None)
        self._received += size
        self._held = memoryview(bytes(self._held) + _shared[:size])
        if self._held[0] != _HANDSHAKE and self._ssl is None:
            first = bytes(self._held[:4]).hex(" ")
            reason = (
                f"the client does not speak TLS (it began with {first}): it needs security.protocol=SSL or SASL_SSL"
            )
            self._tell("tls.plain_client", reason=reason)
            raise Disconnected
        if self._received > MAX_HANDSHAKE_BYTES:
            self._turn_away(f"its handshake has more than {MAX_HANDSHAKE_BYTES >> 10} KiB")
        if self._ready_since is None and self._record_size(self._held, 0):
            self._ready_since = trio.current_time()
            self._handshakes.ready(self)

    def step(self) -> None:
        """Continue the handshake; the next `receive` gives the connection its result."""
        assert self._ready_since is not None
        self._deadline += trio.current_time() - self._ready_since
        self._ready_since = None
        try:
            self._go_on()
        except Disconnected as error:
            self._failure = error
        if self.is_open or self._failure:
            self._handshakes.ended(self)
            self._read_soon()

    def give_up(self, reason: str) -> None:
        self._tell("tls.failed", reason=reason)
        self._failure = Disconnected()
        self._handshakes.ended(self)
        self._read_soon()

    def _go_on(self) -> None:
        if self._ssl is None:
            if self._kernel is not None and not accepts_full_records(self._held):
                self._kernel = None
            self._ssl = self._terms.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        held, at = self._held, 0
        try:
            while not self.is_open and (size := self._record_size(held, at)):
                self._records += 1
                if self._records > MAX_HANDSHAKE_RECORDS:
                    self._turn_away(f"its handshake has more than {MAX_HANDSHAKE_RECORDS} records")
                self._incoming.write(held[at : at + size])
                at += size
                self.is_open = self._do_handshake(self._ssl)
            self._held = memoryview(bytes(held[at:]))
            if self.is_open:
                self._known_as(self._terms.principal(self._ssl.getpeercert(binary_form=True)))
        except ssl.SSLError as error:
            self._send_alert()
            self._turn_away(_reason(error))
        except OSError as error:  # there is no memory for a line of the key log
            self._turn_away(str(error))
        except (NoRuleFits, DerError) as error:
            self.is_open = False
            self._turn_away(f"its certificate gives it no name: {error}")
        self._flush_or_wait()
        if self._secret and self.is_open:
            self._hand_over(self._ssl)

    def _do_handshake(self, tls: ssl.SSLObject) -> bool:
        """Let OpenSSL take a step of the handshake; whether it was the last. Raises ssl.SSLError."""
        logged = contextlib.nullcontext() if self._kernel is None or self._secret else KeyLog(self._terms.context)
        is_done = False
        with logged as log, contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
            is_done = True
        if log is not None and log.secret:
            self._secret = log.secret
        return is_done

    def _hand_over(self, tls: ssl.SSLObject) -> None:
        """Let the kernel encrypt from now on, if it can."""
        cipher = tls.cipher()
        if self._kernel is not None and cipher is not None and not self._unsent:
            self._is_in_kernel = self._kernel.take_over(self._sock, cipher[0], self._secret)
        self._secret = b""

    def _turn_away(self, reason: str) -> None:
        """Report the reason, and end the connection."""
        self._tell("tls.failed", reason=visible(reason))
        raise Disconnected

    # --- receiving ----------------------------------------------------------------------------------------------------

    def receive(self, room: memoryview) -> int | None:
        if self._failure:
            raise self._failure
        if not self.is_open:
            self._receive_handshake()
            return None
        got = self._decrypt(self._held, room) if self.has_more or self._held else 0
        if got or self._is_ended:
            return got
        left = len(self._held)  # of an incomplete record
        _shared[:left] = self._held
        size = self._receive_some(_shared[left : min(left + max(len(room), MAX_RECORD), len(_shared))])
        if size is None:
            return None
        if size == 0:
            return 0
        got = self._decrypt(_shared[: left + size], room)
        self._held = memoryview(bytes(self._held)) if self._held else _NOTHING  # the shared buffer must not be kept
        return got if got or self._is_ended else None

    def _receive_some(self, room: memoryview) -> int | None:
        try:
            return self._sock.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise Disconnected(error.strerror) from None

    def _record_size(self, data: memoryview, at: int) -> int:
        """The size of the record at `at`; 0 if it is incomplete. Raises Disconnected if it is not a record."""
        if at + HEADER > len(data):
            return 0
        kind, length = data[at], data[at + 3] << 8 | data[at + 4]
        if kind not in _TYPES or data[at + 1] != 3 or length > MAX_CONTENT:
            self._turn_away(f"it sent bytes that are not a TLS record ({bytes(data[at : at + HEADER]).hex(' ')})")
        if kind == _HANDSHAKE and self.is_open:
            self._turn_away("it asks for another handshake, and there is no renegotiation")
        size = HEADER + length
        return size if at + size <= len(data) else 0

    def _whole_records(self, data: memoryview, at: int) -> tuple[int, int]:
        """The end and the number of the next complete records, which OpenSSL gets together.

        Some clients send many tiny records, so this is `_record_size` without the calls.
        """
        end, count, left, most = at, 0, len(data) - HEADER, at + MAX_RECORD
        while end <= left and count < RECORDS_AT_ONCE:
            size = HEADER + (data[end + 3] << 8 | data[end + 4])
            if data[end] != _APPLICATION or data[end + 1] != 3 or size > MAX_RECORD:
                self._record_size(data, end)
            if end + size > len(data) or (end + size > most and count):
                break
            end += size
            count += 1
        return end, count

    def _decrypt(self, data: memoryview, room: memoryview) -> int:
        """Decrypt complete records into `room`: as much as fits, and as many as one call may decrypt.

        Sets `_held`, and whether there is more.
        """
        tls, incoming = self._ssl, self._incoming
        assert tls is not None
        read: Callable[[int, memoryview], int] = tls.read  # type: ignore[assignment]
        got, at, taken, size = 0, 0, 0, len(room)
        try:
            while not self._is_ended:
                while got < size and (incoming.pending or tls.pending()):
                    try:
                        count = read(size - got, room[got:] if got else room)
                    except ssl.SSLWantReadError:
                        self._quiet += 1
                        if self._quiet > MAX_QUIET:
                            raise Disconnected("too many TLS records without data") from None
                        continue
                    if not count:
                        self._is_ended = True  # the client has sent close_notify
                        break
                    got += count
                    self._quiet = 0
                if got == size or taken >= MOST_RECORDS:
                    break
                end, count = self._whole_records(data, at)
                if not count:
                    break
                incoming.write(data[at:end])
                at = end
                taken += count
            if self._is_in_kernel and not self._is_ended:
                self._check_keys(tls)
        except ssl.SSLError as error:
            self._send_alert()
            raise Disconnected(f"TLS: {_reason(error)}") from None
        self._held = data[at:]
        if at:
            self._looks = 0
        self.has_more = bool(
            self._is_ended or incoming.pending or tls.pending() or (self._held and self._record_size(self._held, 0))
        )
        if self._outgoing.pending and not self._is_in_kernel:
            self._flush_or_wait()
        return got

    def _check_keys(self, tls: ssl.SSLObject) -> None:
        """End the connection if the client has asked for new keys of this side, which the kernel cannot change.

        OpenSSL answers a KeyUpdate before the next data that it encrypts, even if there is none.
        """
        tls.write(b"")
        if self._outgoing.pending:
            raise Disconnected("the client asks for new keys (KeyUpdate), and the kernel cannot change them")

    # --- sending ------------------------------------------------------------------------------------------------------

    def send(self, chunks: list[SizedChunk]) -> list[SizedChunk]:
        i = 1 if chunks and isinstance(chunks[0], Sealed) else 0
        if self._is_in_kernel:
            now, later = _cut(chunks[i:], MOST_SENT)
            return [*send_some(self._sock, now), *later]
        sent = 0
        while True:
            if not self._flush():
                return [Sealed(sum(map(len, self._unsent))), *chunks[i:]]
            if i == len(chunks):
                return []
            if sent >= MOST_SENT:
                return chunks[i:]
            pieces, i = _gather(chunks, i)
            if not pieces:
                return chunks[i:]
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._encrypt(memoryview(data))
            sent += len(data)

    def _encrypt(self, data: memoryview) -> None:
        assert self._ssl is not None
        write, read = self._ssl.write, self._outgoing.read
        try:
            for at in range(0, len(data), PLAIN_BYTES):
                write(data[at : at + PLAIN_BYTES])
                self._unsent.append(read())
        except ssl.SSLError as error:
            raise Disconnected(f"TLS: {_reason(error)}") from None

    def _send_alert(self) -> None:
        """Tell the client why OpenSSL has failed; only OpenSSL could, so nothing is told once the kernel encrypts."""
        if not self._is_in_kernel:
            with contextlib.suppress(OSError, Disconnected):
                self._flush()

    def _flush(self) -> bool:
        """Send encrypted bytes without waiting; whether all are sent. Raises OSError."""
        unsent = self._unsent
        if self._outgoing.pending:
            unsent.append(self._outgoing.read())
        if not unsent:
            return True
        try:
            sent = self._sock.send(unsent[0]) if len(unsent) == 1 else self._sock.sendmsg(unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        done = 0
        while done < len(unsent) and sent >= len(unsent[done]):
            sent -= len(unsent[done])
            done += 1
        del unsent[:done]
        if unsent and sent:
            unsent[0] = memoryview(unsent[0])[sent:]
        return not unsent

    def _flush_or_wait(self) -> None:
        """Send OpenSSL's own records; bytes that the socket does not take, the connection sends later."""
        try:
            if not self._flush():
                self._send_soon()
        except OSError as error:
            raise Disconnected(error.strerror) from None

    async def until_sendable(self, chunk: SizedChunk) -> None:
        if is_cold(chunk):
            await self._workers.read(self.client, chunk.warm)  # type: ignore[attr-defined]
            return
        self._is_waited_for = True
        try:
            await trio.lowlevel.wait_writable(self._sock)
        finally:
            self._is_waited_for = False


def _gather(chunks: list[SizedChunk], i: int) -> tuple[list[bytes | bytearray | memoryview], int]:
    """The next pieces to send, `GATHER_BYTES` at most, and where the rest of the chunks begins."""
    pieces: list[bytes | bytearray | memoryview] = []
    free = GATHER_BYTES
    while i < len(chunks) and free:
        chunk = chunks[i]
        size = min(len(chunk), free)
        if isinstance(chunk, IN_MEMORY):
            pieces.append(chunk if size == len(chunk) else memoryview(chunk)[:size])
            rest: SizedChunk = memoryview(chunk)[size:]
        elif is_cold(chunk):
            break
        else:
            pieces.append(chunk.first(size).read())  # type: ignore[attr-defined]
            rest = chunk.rest(size)  # type: ignore[attr-defined]
        free -= size
        if size < len(chunk):
            chunks[i] = rest
        else:
            i += 1
    return pieces, i


def _cut(chunks: list[SizedChunk], most: int) -> tuple[list[SizedChunk], list[SizedChunk]]:
    """The first `most` bytes of the chunks, and the rest."""
    for i, chunk in enumerate(chunks):
        if len(chunk) > most:
            if isinstance(chunk, IN_MEMORY):
                first, rest = memoryview(chunk)[:most], memoryview(chunk)[most:]
            else:
                first, rest = chunk.first(most), chunk.rest(most)  # type: ignore[attr-defined]
            return [*chunks[:i], *([first] if most else [])], [rest, *chunks[i + 1 :]]
        most -= len(chunk)
    return chunks, []


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's error in plain words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    text = (error.reason or str(error)).lower().replace("_", " ")
    known = {
        "peer did not return a certificate": "it has no certificate, and ssl.client.auth=required",
        "unsupported protocol": "it speaks no version of TLS that ssl.enabled.protocols names",
        "no shared cipher": "it has no cipher suite in common with this broker",
        "no suitable signature algorithm": "it has no signature algorithm in common with this broker's key",
    }
    for alert in ("sslv3 alert ", "tlsv1 alert ", "tlsv13 alert "):
        if text.startswith(alert):
            return f"the client refused: {text.removeprefix(alert)}"
    return known.get(text, text)
