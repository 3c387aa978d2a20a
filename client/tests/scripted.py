"""A broker that follows a test's script: a thread on loopback, using the protocol's codecs."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from barnabas.client.connection import Address
from barnabas.client.retry import Timing
from barnabas.wire.codegen import message_codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import read_request_header, skip_header_tags
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.types import Message


class Raw(bytes):
    """Bytes that are sent unchanged, including length and correlation id."""


#: Answers a request; None closes the connection.
Answer = Callable[[Any], Message | Raw | None]


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    @property
    def timing(self) -> Timing:
        return Timing(lambda: self.now, self.sleep, lambda: 0.5)


class Scripted:
    """The requests received over all connections, and the address to reach it at."""

    def __init__(self, play: Mapping[type[Message], Answer], *, host: str = "127.0.0.1") -> None:
        self.play = dict(play)
        self.requests: list[Any] = []
        self.versions: list[int] = []
        self.connections = 0
        self.address = Address(host, 0)
        self._server: socketserver.ThreadingTCPServer | None = None
        self._open: set[socket.socket] = set()
        self.start()

    def asked(self, kind: type[Message]) -> int:
        """How many requests of this kind were received."""
        return sum(isinstance(request, kind) for request in self.requests)

    def start(self) -> None:
        """Listen on the same port as before."""
        broker = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    broker._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False
            allow_reuse_address = True
            address_family = socket.AF_INET6 if ":" in broker.address.host else socket.AF_INET

        self._server = Server(self.address, Handler)
        self.address = Address(self.address.host, self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Close the listener and all connections."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self.hang_up()

    def hang_up(self) -> None:
        """Close all connections, but keep listening."""
        for sock in list(self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _serve(self, sock: socket.socket) -> None:
        self.connections += 1
        self._open.add(sock)
        file = sock.makefile("rb")
        try:
            while len(size := file.read(4)) == 4:
                answer = self._answer(file.read(int.from_bytes(size, "big")))
                if answer is None:
                    return
                sock.sendall(answer)
        finally:
            self._open.discard(sock)

    def _answer(self, frame: bytes) -> bytes | None:
        header = read_request_header(frame)
        kind = next(kind for kind in self._kinds if kind.__wire__.key == header.api_key)
        flexible = header.api_version in kind.__wire__.flexible
        at = skip_header_tags(frame, header.end) if flexible else header.end
        request = message_codec(kind, header.api_version).decode(frame, at)[0]
        self.requests.append(request)
        self.versions.append(header.api_version)
        answer = self.play[kind](request) if kind in self.play else self._api_versions()
        if answer is None or isinstance(answer, Raw):
            return answer
        tags = b"\0" if flexible and kind is not ApiVersionsRequest else b""
        body = message_codec(type(answer), header.api_version).build(answer)
        framed = header.correlation_id.to_bytes(4, "big") + tags + body
        return len(framed).to_bytes(4, "big") + framed

    @property
    def _kinds(self) -> list[type[Message]]:
        return [*self.play, ApiVersionsRequest]

    def _api_versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(api_keys=[api(kind) for kind in self._kinds])


def api(kind: type[Message], first: int | None = None, last: int | None = None) -> ApiVersion:
    """The range of versions of an API that a broker reports."""
    known = kind.__wire__.versions
    return ApiVersion(kind.__wire__.key, known.first if first is None else first, known.last if last is None else last)


@contextlib.contextmanager
def scripted(play: Mapping[type[Message], Answer] | None = None, *, host: str = "127.0.0.1") -> Iterator[Scripted]:
    """A broker for the duration of the block. It leads partition 0 of topic `t`, unless the script has Metadata."""
    made = Scripted({**(play or {})}, host=host)
    if MetadataRequest not in made.play:
        made.play[MetadataRequest] = lambda request: metadata({1: made}, {"t": {0: 1}}, request)
    try:
        yield made
    finally:
        made.stop()


def metadata(
    brokers: Mapping[int, Scripted], leaders: Mapping[str, Mapping[int, int]], request: MetadataRequest
) -> MetadataResponse:
    """The leaders of partitions. A requested topic that is missing is unknown."""
    names = [topic.name or "" for topic in request.topics] if request.topics is not None else list(leaders)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node, made.address.host, made.address.port) for node, made in brokers.items()],
        controller_id=min(brokers),
        topics=[
            MetadataResponseTopic(
                name=name,
                error_code=ErrorCode.NONE if name in leaders else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                partitions=[
                    MetadataResponsePartition(partition_index=partition, leader_id=leader)
                    for partition, leader in leaders.get(name, {}).items()
                ],
            )
            for name in names
        ],
    )
