"""One connection that speaks single messages: for tests that look at the wire itself, against any broker."""

from __future__ import annotations

import socket
import struct
import sys
from collections import deque
from typing import Any, Self

from wire.codegen import codec
from wire.header import write_request_header
from wire.messages.api_versions import ApiVersionsRequest
from wire.messages.produce import ProduceRequest
from wire.types import Message

API_VERSIONS = 18


class Closed(Exception):
    """The broker has closed the connection."""


def response_type(request: type[Message]) -> type[Message]:
    """The answer's class: it stands beside the request's."""
    name = request.__name__.removesuffix("Request") + "Response"
    found: type[Message] = getattr(sys.modules[request.__module__], name)
    return found


def frame(request: Message, version: int, correlation_id: int, client_id: str | None = "pipe") -> bytes:
    """A whole request as it goes over the wire."""
    spec = request.__wire__
    head = write_request_header(spec.key, version, correlation_id, client_id, version >= spec.flexible.first)
    body = head + codec(type(request), version).build(request)
    return len(body).to_bytes(4, "big") + body


class Pipe:
    """A blocking connection. `send` sends any number of requests in one piece; `receive` gives the next answer."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout: float = 30.0) -> None:
        self._socket = socket.create_connection((host, port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._expected: deque[tuple[type[Message], int, int]] = deque()
        self._sent = 0
        self.versions: dict[int, int] = {}
        """The highest version of each API that both sides speak."""
        spoken = self.ask(ApiVersionsRequest("pipe", "1"), 3)
        self.versions = {api.api_key: api.max_version for api in spoken.api_keys}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def version_of(self, request: Message) -> int:
        """The highest common version."""
        spec = request.__wire__
        return min(spec.versions.last, self.versions[spec.key])

    def send(self, *requests: Message | tuple[Message, int]) -> None:
        """Send requests, those in a pair in the version that stands there, in one call."""
        data = b""
        for each in requests:
            request, version = each if isinstance(each, tuple) else (each, self.version_of(each))
            self._sent += 1
            if not (isinstance(request, ProduceRequest) and request.acks == 0):
                self._expected.append((type(request), version, self._sent))
            data += frame(request, version, self._sent)
        self._socket.sendall(data)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def receive_bytes(self) -> bytes:
        """The next answer, without its length. Raises Closed."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def receive(self) -> Any:
        """The answer to the oldest request that has none yet. Raises Closed."""
        request, version, correlation_id = self._expected.popleft()
        data = self.receive_bytes()
        assert int.from_bytes(data[:4], "big") == correlation_id, "an answer out of turn"
        spec = request.__wire__
        start = 5 if version >= spec.flexible.first and spec.key != API_VERSIONS else 4
        answer, end = codec(response_type(request), version).decode(data, start)
        assert end == len(data)
        return answer

    def ask(self, request: Message, version: int | None = None) -> Any:
        """A request and its answer."""
        self.send(request if version is None else (request, version))
        return self.receive()

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self._socket.recv(min(size - len(parts), 1 << 20))
            except ConnectionResetError:
                part = b""
            if not part:
                raise Closed
            parts += part
        return bytes(parts)
