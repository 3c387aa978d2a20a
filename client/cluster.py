"""A small Kafka client: blocking sockets, versions chosen with the broker, leaders from metadata.

It speaks through the same codecs as the broker and works against any Kafka broker.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from barnabas.wire.codegen import codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import skip_header_tags, write_request_header
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Message

R = TypeVar("R", bound=Message)
CLIENT_ID = "barnabas-cli"
TIMEOUT_SECONDS = 30.0
_FIND_BY_KEY = 3  # the last version that asks for one coordinator
CREATE_SECONDS, BACKOFF_SECONDS = 15.0, 0.1
NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


class ClientError(Exception):
    """What the user of the command line is told, in one line."""


def check(code: int, what: str, message: str | None = None) -> None:
    """Raises ClientError for an error code, with its name and what was being done."""
    if code:
        name = ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"
        raise ClientError(f"{what}: {name}" + (f" ({message})" if message else ""))


def parse_server(text: str) -> tuple[str, int]:
    """HOST:PORT, the port 9092 if left out; of a list the first. Raises ClientError."""
    host, colon, port = text.split(",")[0].strip().rpartition(":")
    if not colon:
        host, port = port, "9092"
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise ClientError(f"{text}: expected HOST:PORT")
    return host.strip("[]") or "localhost", int(port)


class Posted(NamedTuple):
    """A request that was sent, and what its response is known by."""

    correlation: int
    version: int
    key: int
    flexible: bool


class Wire:
    """One connection to a broker."""

    def __init__(self, host: str, port: int) -> None:
        self.address = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout=TIMEOUT_SECONDS)
        except OSError as error:
            raise ClientError(
                f"Cannot connect to {self.address}: {error.strerror or error}; is a broker running there?"
            ) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation = itertools.count()
        self._versions: dict[int, tuple[int, int]] = {}
        answer = self.answer(self._post(ApiVersionsRequest("barnabas", "1"), 3), ApiVersionsResponse)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self.answer(self._post(ApiVersionsRequest(), 0), ApiVersionsResponse)
        check(answer.error_code, "ApiVersions")
        self._versions = {a.api_key: (a.min_version, a.max_version) for a in answer.api_keys}

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def version_of(self, request: type[Message]) -> int:
        """The highest version that both sides know. Raises ClientError if there is none."""
        low, high = self._versions.get(request.__wire__.key, (0, -1))
        version = min(high, request.__wire__.versions.last)
        if version < max(low, request.__wire__.versions.first):
            raise ClientError(f"{self.address} does not serve {request.__name__.removesuffix('Request')}")
        return version

    def ask(self, request: Message, response: type[R], *, version: int | None = None, wait: float = 0) -> R:
        """Send a request and read its response; `wait` seconds are what the broker may take. Raises ClientError."""
        self._socket.settimeout(TIMEOUT_SECONDS + wait)
        return self.answer(self.post(request, version=version), response)

    def post(self, request: Message, *, version: int | None = None) -> Posted:
        """Send a request whose response is read later; responses come in the order of requests. Raises ClientError."""
        return self._post(request, self.version_of(type(request)) if version is None else version)

    def _post(self, request: Message, version: int) -> Posted:
        spec = type(request).__wire__
        flexible = version in spec.flexible
        posted = Posted(next(self._correlation), version, spec.key, flexible)
        frame = write_request_header(spec.key, version, posted.correlation, CLIENT_ID, flexible)
        frame += codec(type(request), version).build(request)
        try:
            self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        except OSError as error:
            raise ClientError(f"{self.address}: {error}") from None
        return posted

    def answer(self, posted: Posted, response: type[R]) -> R:
        """Read the response to a request. Raises ClientError."""
        try:
            answer = self._receive(int.from_bytes(self._receive(4), "big"))
            if int.from_bytes(answer[:4], "big", signed=True) != posted.correlation:
                raise ClientError(f"{self.address} answered out of order")
            if posted.key == 18 and answer[4:6] == b"\0\x23":  # an unknown version is answered in version 0
                return codec(response, 0).decode(answer, 4)[0]
            body = skip_header_tags(answer, 4) if posted.flexible and posted.key != 18 else 4
            return codec(response, posted.version).decode(answer, body)[0]
        except (OSError, ProtocolError) as error:
            raise ClientError(f"{self.address}: {error}") from None

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ClientError(f"{self.address} closed the connection")
            parts += part
        return bytes(parts)


class Cluster:
    """The brokers behind a bootstrap address: one connection each, made when it is first used."""

    def __init__(self, server: str) -> None:
        self._bootstrap = Wire(*parse_server(server))
        self._brokers: dict[int, tuple[str, int]] = {}
        self._wires: dict[int, Wire] = {}
        self.controller_id = -1

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for wire in (self._bootstrap, *self._wires.values()):
            wire.close()

    def any(self, request: Message, response: type[R], **options: Any) -> R:
        """Ask any broker."""
        return self._bootstrap.ask(request, response, **options)

    def post(self, request: Message, *, version: int) -> Posted:
        """Send a request to any broker; its answer must be read before those to later requests."""
        return self._bootstrap.post(request, version=version)

    def answer(self, posted: Posted, response: type[R]) -> R:
        """The response to what was posted."""
        return self._bootstrap.answer(posted, response)

    def broker(self, node_id: int) -> Wire:
        """The connection to a broker. Raises ClientError if the cluster does not know it."""
        if node_id not in self._wires:
            if node_id not in self._brokers:
                raise ClientError(f"There is no leader or coordinator now (broker {node_id})")
            self._wires[node_id] = Wire(*self._brokers[node_id])
        return self._wires[node_id]

    def coordinator(self, group: str) -> Wire:
        """The connection to the broker that coordinates a group. Raises ClientError if there is none now."""
        found = self.any(FindCoordinatorRequest(key=group), FindCoordinatorResponse, version=_FIND_BY_KEY)
        check(found.error_code, f"Coordinator of group {group}", found.error_message)
        if found.node_id not in self._brokers:
            self.metadata([])
        return self.broker(found.node_id)

    def controller(self, request: Message, response: type[R], **options: Any) -> R:
        """Ask the broker that answers for changes of topics."""
        if self.controller_id < 0:
            self.metadata([])
        return self.broker(self.controller_id).ask(request, response, **options)

    def metadata(self, topics: Iterable[str] | None, *, create: bool = False) -> list[MetadataResponseTopic]:
        """Topics with partitions and leaders; None asks for all."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=create)
        answer = self.any(request, MetadataResponse)
        self._brokers = {b.node_id: (b.host, b.port) for b in answer.brokers}
        self.controller_id = answer.controller_id
        return answer.topics

    def leaders(self, topic: str, *, create: bool = False) -> dict[int, int]:
        """The leader's broker id of each partition; with `create`, wait until it is made. ClientError if unknown."""
        (found,) = self.metadata([topic], create=create)
        until = time.monotonic() + CREATE_SECONDS
        while create and found.error_code in NOT_YET and time.monotonic() < until:
            time.sleep(BACKOFF_SECONDS)  # a broker may create in the background, and tells nobody when it is done
            (found,) = self.metadata([topic], create=create)
        check(found.error_code, f"Topic {topic}")
        return {p.partition_index: p.leader_id for p in sorted(found.partitions, key=lambda p: p.partition_index)}
