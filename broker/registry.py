"""The APIs that are served: each handler registers its message and versions, ApiVersions is built from what registered.

A handler is a plain function `handle(context, request)`. It gives back

- a response: it is sent at once, in the order of the connection's requests;
- an awaitable of one: what had to happen in request order has happened, the rest may take its time (an fsync, a long
  poll). The connection goes on with later requests and sends the answers in order;
- a `Later`: the same, where a callback completes the answer rather than a coroutine. It costs no task switch, so the
  answers that are waited for most often (acks=all, long polls) are of this kind;
- None: there is no answer (Produce with acks=0).

Each handler states which parts of the broker's state it `uses` and `changes`: `broker.order` holds back requests by it.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.broker.later import Later
from barnabas.broker.order import NOTHING
from barnabas.wire.codegen import codec
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Message, SizedChunk, Versions

if TYPE_CHECKING:
    from barnabas.broker.connection import Connection
    from barnabas.broker.large import Large
    from barnabas.broker.node import Node

Q = TypeVar("Q", bound=Message)
API_VERSIONS = 18


Answer = Message | Later | Awaitable["Message | Large"] | None


class Context:
    """What a handler knows besides the request."""

    __slots__ = ("client_id", "connection", "node", "version")

    def __init__(self, node: Node, connection: Connection, version: int, client_id: str | None) -> None:
        self.node, self.connection, self.version, self.client_id = node, connection, version, client_id


@dataclass(frozen=True, slots=True)
class Api:
    """One served API. `advertised` differs from `versions` only where clients need to see versions that are refused."""

    key: int
    name: str
    versions: Versions
    advertised: Versions
    flexible_from: int
    request: type[Message]
    response: type[Message]
    handle: Callable[[Context, Any], Answer]
    uses: int
    changes: int


class Endpoint:
    """One API in one version: all that a request of it needs, looked up once."""

    __slots__ = ("_encode", "_head", "api", "decode", "flexible", "handle", "version")

    def __init__(self, api: Api, version: int, *, reads: bool = True) -> None:
        """Requests that are not to be read (`reads`) are None for the handler."""
        self.api, self.handle, self.version = api, api.handle, version
        self.flexible = version >= api.flexible_from
        self.decode: Callable[[bytes | memoryview, int, int], tuple[Any, int]]
        self.decode = codec(api.request, version).decode if reads else _unread
        self._encode = codec(api.response, version).encode
        # Length and correlation id; in flexible versions an empty tag block, except for ApiVersions (KIP-511).
        self._head = struct.Struct(">iix" if self.flexible and api.key != API_VERSIONS else ">ii")

    def encode(self, response: Message, correlation_id: int) -> list[SizedChunk]:
        """A response as it is sent: in one piece, unless it carries log data that goes from file to socket.

        An answer of ours that does not fit its message is our fault, not the client's: raises RuntimeError.
        """
        try:
            chunks = self._encode(response)
        except ProtocolError as error:
            raise RuntimeError(
                f"the answer of {self.api.name} version {self.version} cannot be encoded: {error}"
            ) from error
        before = self._head.size - 4
        try:
            body = b"".join(chunks)  # type: ignore[arg-type]
        except TypeError:
            return [self._head.pack(before + sum(map(len, chunks)), correlation_id), *chunks]
        return [self._head.pack(before + len(body), correlation_id) + body]


def _unread(frame: bytes | memoryview, position: int, most: int) -> tuple[None, int]:
    return None, position


APIS: dict[int, Api] = {}
_endpoints: dict[tuple[int, int], Endpoint] = {}


def api(
    request: type[Q],
    response: type[Message],
    *,
    uses: int,
    changes: int = NOTHING,
    versions: Versions | None = None,
    advertised: Versions | None = None,
) -> Callable[[Callable[[Context, Q], Answer]], Callable[[Context, Q], Answer]]:
    """Register a handler for all of Kafka's versions of a message, or for those named.

    `uses` and `changes` are of `broker.order`. What a handler changes, it need not name as used to come after earlier
    changes of the same kind: the handlers are called in order.
    """

    def register(handle: Callable[[Context, Q], Answer]) -> Callable[[Context, Q], Answer]:
        spec = request.__wire__
        served = versions or spec.versions
        if spec.key in APIS:
            raise ValueError(f"API key {spec.key} is registered twice")
        name = request.__name__.removesuffix("Request")
        APIS[spec.key] = Api(
            spec.key, name, served, advertised or served, spec.flexible.first, request, response, handle, uses, changes
        )
        return handle

    return register


def find(key: int, version: int) -> Endpoint:
    """What serves a request. Raises ProtocolError where Kafka closes the connection: unknown key or version.

    A client that asks for an unknown version of ApiVersions is answered in version 0, so that it can step down; its
    request is not read (KIP-511).
    """
    endpoint = _endpoints.get((key, version))
    if endpoint is None:
        found = APIS.get(key)
        if found is None:
            raise ProtocolError(f"unknown API key {key}")
        if version not in found.versions:
            if key == API_VERSIONS:
                return Endpoint(found, 0, reads=False)
            raise ProtocolError(f"{found.name} has no version {version} here")
        endpoint = _endpoints[key, version] = Endpoint(found, version)
    return endpoint
