"""One connection that sends and receives single messages, for tests of the protocol itself, against any broker."""

from __future__ import annotations

import socket
import struct
from collections import deque
from typing import Any, Self

from barnabas.broker.tests.client import Closed, answer_of, frame_of
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.produce import ProduceRequest
from barnabas.wire.types import Message

CLIENT_ID = "pipe"


class Pipe:
    """A blocking connection. `send` sends any number of requests at once; `receive` returns the next answer."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout: float = 30.0, source: str | None = None) -> None:
        """`source` is the local address of the connection."""
        self._socket = socket.create_connection((host, port), timeout, source and (source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._expected: deque[tuple[Message, int, int]] = deque()
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
        """The highest version of an API that both sides know."""
        spec = request.__wire__
        return min(spec.versions.last, self.versions[spec.key])

    def send(self, *requests: Message | tuple[Message, int]) -> None:
        """Send requests in one call. A pair gives the version of its request."""
        data = b""
        for each in requests:
            request, version = each if isinstance(each, tuple) else (each, self.version_of(each))
            self._sent += 1
            if not (isinstance(request, ProduceRequest) and request.acks == 0):
                self._expected.append((request, version, self._sent))
            data += frame_of(request, version, self._sent, CLIENT_ID)
        self._socket.sendall(data)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def receive_bytes(self) -> bytes:
        """The next answer, without its length. Raises Closed."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def receive(self) -> Any:
        """The answer to the oldest unanswered request. Raises Closed."""
        request, version, correlation_id = self._expected.popleft()
        return answer_of(self.receive_bytes(), request, version, correlation_id)

    def ask(self, request: Message, version: int | None = None) -> Any:
        """Send a request, and return its answer."""
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
