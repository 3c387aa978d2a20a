"""One connection to a broker: frames, correlation ids, and the versions that both sides support.

The broker is not trusted. An answer to another request, or one that is absurdly long, cut short or unreadable, ends the
connection. After an error the connection is not used again.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, NoReturn, TypeVar

from barnabas.client import silence
from barnabas.client.errors import ClientError, LostError, UnknownFateError, check, name_of
from barnabas.client.retry import is_repeatable
from barnabas.client.sasl import LoginError
from barnabas.client.security import Security, of_process
from barnabas.wire.codegen import message_codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import skip_header_tags, write_request_header
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Message

R = TypeVar("R", bound=Message)
T = TypeVar("T")
CLIENT_ID = "barnabas-cli"
TIMEOUT_SECONDS = 30.0
MAX_ANSWER_BYTES = 1 << 30
# A login is renewed after this part of its lifetime.
_RENEWED_AFTER = 0.8
_API_VERSIONS = ApiVersionsRequest.__wire__.key
_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_servers(text: str) -> list[Address]:
    """Parse HOST:PORT[,HOST:PORT...]; IPv6 hosts are in brackets, the port defaults to 9092. Raises ClientError."""
    return [_parse_server(part.strip()) for part in text.split(",") if part.strip()] or [_parse_server("")]


def _parse_server(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, "9092"
    bare = host.removeprefix("[").removesuffix("]")
    in_brackets = host != bare
    if not port.isdigit() or not 0 < int(port) < 65536 or (":" in bare and not in_brackets):
        raise ClientError(f"{text}: expected HOST:PORT")
    return Address(bare or "localhost", int(port))


def connect(servers: Sequence[Address], security: Security | None = None) -> Connection:
    """Connect to the first server that answers. Raises ClientError if none does."""
    failed: list[ClientError] = []
    for address in servers:
        try:
            return Connection(address, security)
        except ClientError as error:
            failed.append(error)
    if len(failed) == 1:
        raise failed[0]
    raise LostError("; ".join(map(str, failed)) or "no broker is known")


class Posted(NamedTuple):
    """A request that was sent, and what is needed to recognize its response."""

    request: Message
    correlation: int
    version: int
    flexible: bool

    @property
    def api(self) -> str:
        return type(self.request).__name__.removesuffix("Request")


def _connected(address: Address) -> socket.socket:
    """Open a socket. Raises OSError, OverflowError, UnicodeError."""
    try:
        made = socket.create_connection(address, timeout=silence.SECONDS)
    except TimeoutError:
        silence.tell(address, "taken the connection")
        made = socket.create_connection(address, timeout=TIMEOUT_SECONDS - silence.SECONDS)
    made.settimeout(TIMEOUT_SECONDS)
    return made


class Connection:
    """One connection. Responses come in the order of the requests."""

    def __init__(self, address: Address, security: Security | None = None) -> None:
        """Connect and log in. `security` defaults to that of the process.

        Raises LostError if nobody listens there, LoginError if the login fails, and ClientError if it is not a broker
        that this client can talk to.
        """
        self.address = address
        self.is_open = False
        self._security = of_process() if security is None else security
        self._renew_at = float("inf")  # in time.monotonic seconds
        self._is_new = True  # whether only ApiVersions has been answered so far
        try:
            self._socket = _connected(address)
        except (OSError, OverflowError, UnicodeError) as error:  # a broker may have told us an invalid host or port
            reason = getattr(error, "strerror", None) or error
            raise LostError(f"Cannot connect to {address}: {reason}; is a broker running there?") from None
        self.is_open = True
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._security.context is not None:
            self._encrypt(self._security.context)
        self._correlation = itertools.count()
        self._unanswered = 0
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            self._agree_on_versions()
            self._log_in()
        except ClientError:
            self.close()
            raise

    def _agree_on_versions(self) -> None:
        answer = self.answer(self._post(ApiVersionsRequest("barnabas", "1"), 3), ApiVersionsResponse)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self.answer(self._post(ApiVersionsRequest(), 0), ApiVersionsResponse)
        check(answer.error_code, "ApiVersions")
        self._versions = {a.api_key: (a.min_version, a.max_version) for a in answer.api_keys}

    def _encrypt(self, context: ssl.SSLContext) -> None:
        try:
            wrapped = context.wrap_socket(
                self._socket, server_hostname=self.address.host, do_handshake_on_connect=False
            )
            self._socket = wrapped
            self._patiently(wrapped.do_handshake)
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise ClientError(f"{self.address} is not trusted: {error.verify_message}") from None
        except (OSError, ValueError) as error:
            self.close()
            reason = getattr(error, "reason", None) or error
            raise LostError(f"{self.address}: no TLS connection ({reason}); does this listener use TLS?") from None

    def _log_in(self) -> None:
        """Log in if that is configured. Raises LoginError."""
        begin, mechanism = self._security.begin, self._security.mechanism
        if begin is None:
            return
        self._renew_at = float("inf")
        chosen = self.answer(self._post(SaslHandshakeRequest(mechanism), 1), SaslHandshakeResponse)
        if chosen.error_code:
            served = ", ".join(chosen.mechanisms) or "none"
            raise LoginError(f"{self.address} does not take logins by {mechanism}; its mechanisms: {served}")
        lifetime, tokens = 0, begin()
        try:
            token = next(tokens)
            while True:
                told = self.answer(
                    self._post(SaslAuthenticateRequest(token), self.version_of(SaslAuthenticateRequest)),
                    SaslAuthenticateResponse,
                )
                if told.error_code:
                    reason = told.error_message or name_of(told.error_code)
                    raise LoginError(f"{self.address} refuses the login: {reason}")
                lifetime = told.session_lifetime_ms
                token = tokens.send(told.auth_bytes)
        except StopIteration:
            pass
        if lifetime > 0:
            self._renew_at = time.monotonic() + lifetime * _RENEWED_AFTER / 1000

    def close(self) -> None:
        """Close the connection."""
        if self.is_open:
            self.is_open = False
            self._socket.close()

    def version_of(self, request: type[Message], *, last: int | None = None) -> int:
        """The highest version that both sides support, up to `last`. Raises ClientError if there is none."""
        low, high = self._versions.get(request.__wire__.key, (0, -1))
        known = request.__wire__.versions
        version = min(high, known.last if last is None else last)
        if version < max(low, known.first):
            raise ClientError(f"{self.address} does not serve {request.__name__.removesuffix('Request')}")
        return version

    def ask(
        self,
        request: Message,
        response: type[R],
        *,
        version: int | None = None,
        last_version: int | None = None,
        wait: float = 0,
    ) -> R:
        """Send a request and read its response. The broker may take up to `wait` seconds. Raises ClientError."""
        return self.answer(self.post(request, version=version, last_version=last_version, wait=wait), response)

    def post(
        self, request: Message, *, version: int | None = None, last_version: int | None = None, wait: float = 0
    ) -> Posted:
        """Send a request whose response is read later. Raises LostError if the connection had already ended."""
        if version is None:
            version = self.version_of(type(request), last=last_version)
        if time.monotonic() > self._renew_at and not self._unanswered:
            self._log_in()
        if self.is_open:
            self._socket.settimeout(TIMEOUT_SECONDS + wait)
        return self._post(request, version)

    def _post(self, request: Message, version: int) -> Posted:
        if not self.is_open:
            self._lose("closed the connection")
        spec = type(request).__wire__
        posted = Posted(request, next(self._correlation), version, version in spec.flexible)
        frame = write_request_header(spec.key, version, posted.correlation, CLIENT_ID, posted.flexible)
        frame += message_codec(type(request), version).build(request)
        try:
            self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        except OSError as error:
            self._lose(str(error), posted)
        except BaseException:  # interrupted: half of a frame may have been sent
            self.close()
            raise
        self._unanswered += 1
        return posted

    def answer(self, posted: Posted, response: type[R]) -> R:
        """Read the response to a request. Raises ClientError."""
        if not self.is_open:
            self._lose("closed the connection", posted)
        try:
            answer = self._receive(posted)
            if int.from_bytes(answer[:4], "big", signed=True) != posted.correlation:
                self._lose("answered out of order", posted)
            self._unanswered -= 1
            self._is_new = not self._versions
            is_versions = type(posted.request).__wire__.key == _API_VERSIONS
            if is_versions and answer[4:6] == _UNSUPPORTED:  # an unsupported version is answered in version 0
                return message_codec(response, 0).decode(answer, 4)[0]
            body = skip_header_tags(answer, 4) if posted.flexible and not is_versions else 4
            return message_codec(response, posted.version).decode(answer, body)[0]
        except (OSError, ProtocolError) as error:
            self._lose(str(error), posted)
        except BaseException:  # interrupted: half of an answer may have been read
            self.close()
            raise

    def _receive(self, posted: Posted) -> bytes:
        size = int.from_bytes(self._read(4, posted), "big", signed=True)
        if not 4 <= size <= MAX_ANSWER_BYTES:
            self._lose(f"answers with {size} bytes", posted)
        return self._read(size, posted)

    def _read(self, size: int, posted: Posted) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            receive = partial(self._socket.recv, min(size - len(parts), 1 << 20))
            part = receive() if self._versions else self._patiently(receive)
            if not part:
                self._lose("closed the connection", posted)
            parts += part
        return bytes(parts)

    def _patiently(self, call: Callable[[], T]) -> T:
        """Run a call that waits for the broker's first response; a long wait is reported. Raises OSError."""
        self._socket.settimeout(silence.SECONDS)
        try:
            return call()
        except TimeoutError:
            silence.tell(self.address, "answered")
            self._socket.settimeout(TIMEOUT_SECONDS - silence.SECONDS)
            return call()
        finally:
            self._socket.settimeout(TIMEOUT_SECONDS)

    def is_usable(self) -> bool:
        """Whether the connection is still open. The broker closes idle connections, for example."""
        if not self.is_open or self._unanswered:
            return self.is_open
        try:
            self._socket.settimeout(0)
            self._socket.recv(1)  # no request is open: the end of the stream, or unexpected data
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            pass
        self.close()
        return False

    def _lose(self, reason: str, posted: Posted | None = None) -> NoReturn:
        """Close the connection for good. Raises the error that fits the request that was sent."""
        self.close()
        said = f"{self.address} {reason}" if reason.startswith(("closed", "answer")) else f"{self.address}: {reason}"
        if posted is None or is_repeatable(posted.request):
            if self._is_new and self._versions and self._security.begin is None and reason.startswith("closed"):
                said += " at the first request: it may want a login (--command-config)"
            raise LostError(said) from None
        raise UnknownFateError(f"{said}; whether {posted.api} was carried out is not known") from None
