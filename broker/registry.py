"""The APIs that are served: each handler registers its message and versions, ApiVersions is built from what registered.

A handler is a plain function `handle(context, request, *parts)`. Its annotations say which parts of the broker it gets:
`groups: Groups`, or a dataclass of several. It gives back

- a response: it is sent at once, in the order of the connection's requests;
- an awaitable of one: what had to happen in request order has happened, the rest may take its time (an fsync, a long
  poll). The connection goes on with later requests and sends the answers in order;
- a `DelayedResponse`: the same, where a callback completes the answer rather than a coroutine. It costs no task switch,
  so the answers that are waited for most often (acks=all, long polls) are of this kind;
- None: there is no answer (Produce with acks=0).

Each handler states which parts of the broker's state it `uses` and `changes`: `broker.net.order` holds back requests
by it. Which rights its clients need stands in `broker.security.table`; the handler asks for them with `Context.may`.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.order import ACLS, NOTHING
from barnabas.broker.parts import Parts
from barnabas.broker.quotas.bill import Bill
from barnabas.broker.quotas.manager import QuotaExceeded
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.security.operations import Right, rights_of
from barnabas.broker.security.principals import Principal
from barnabas.broker.security.table import NEEDS, RIGHTS, Need
from barnabas.wire.acls import CLUSTER_NAME, ResourceType
from barnabas.wire.codegen import message_codec
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Message, SizedChunk, Versions, replace

if TYPE_CHECKING:
    from barnabas.broker.net.connection import Connection
    from barnabas.broker.net.large import LargeResponse

R = TypeVar("R")
API_VERSIONS, SASL_AUTHENTICATE = 18, 36
#: The longest throttle time that an answer can say.
MAX_THROTTLE_MS = 2**31 - 1

Answer = Message | DelayedResponse | Awaitable["Message | LargeResponse"] | None
#: `handle(context, request, *parts)`: which parts of the broker it gets, its annotations say.
Handler = Callable[..., Answer]


class Context:
    """What a handler knows of its request: the API and its version, and who asks.

    `throttle_ms` is for how long the client is asked to send nothing more (KIP-219); it stands in the answer, whichever
    way that is made. `received_at` (seconds of `time.perf_counter`) is when the connection began to read what the
    request came with: a metric of its time counts from there. `bill` is what it has cost, if its client
    has quotas.
    """

    __slots__ = ("api", "bill", "client_id", "connection", "correlation_id", "received_at", "throttle_ms", "version")

    def __init__(
        self,
        connection: Connection,
        api: Api,
        version: int,
        correlation_id: int,
        client_id: str | None,
        received_at: float,
    ) -> None:
        self.connection, self.api, self.version, self.correlation_id = connection, api, version, correlation_id
        self.client_id, self.received_at = client_id, received_at
        self.throttle_ms = 0
        self.bill: Bill | None = None

    @property
    def principal(self) -> Principal:
        """Who the client has proved to be."""
        return self.connection.principal

    def throttle(self, seconds: float) -> None:
        """The client is over a quota: its answer says for how long, and its connection is not read meanwhile."""
        throttle_ms = min(round(seconds * 1000), MAX_THROTTLE_MS)
        if throttle_ms > self.throttle_ms:
            self.throttle_ms = throttle_ms
            self.connection.throttle(throttle_ms / 1000)

    def check_change(self, partitions: int, *, strict_since: int) -> None:
        """A topic is to be made, or deleted, or to grow by so many partitions.

        Raises KafkaError if the client has made too many such changes. Up to `strict_since`, it is only throttled.
        """
        if self.bill is None:
            return
        try:
            self.throttle(self.bill.quota.change(partitions, strict=self.version >= strict_since))
        except QuotaExceeded as error:
            self.throttle(error.wait)
            raise

    def paid(self, call: Callable[[], R]) -> Callable[[], R]:
        """A call, perhaps for a thread, whose CPU is the request's."""
        return call if self.bill is None else self.bill.paid(call)

    def paid_steps(self, work: Awaitable[R]) -> Awaitable[R]:
        """What is awaited for the request, whose CPU is the request's."""
        return work if self.bill is None else self.bill.paid_steps(work)

    def settle(self) -> None:
        """The answer is about to be made: what the request has cost says for how long the client waits."""
        if self.bill is not None and not self.bill.is_settled:
            self.bill.is_settled = True
            self.throttle(self.bill.spend())

    def settle_rest(self) -> None:
        """What the answer has cost, later requests wait for."""
        if self.bill is not None:
            self.bill.spend()

    @property
    def client(self) -> str:
        """Whose share is taken of what all clients share."""
        return self.connection.client

    def may(self, right: Right, name: str = CLUSTER_NAME, *, quiet: bool = False) -> bool:
        """Whether the client has a right to the topic, group or the like of that name.

        That it has not is logged, unless it is asked for `quiet`: where another right will do, or in a list.
        """
        authorizer = self.connection.authorizer
        return authorizer is None or self._asks(authorizer, right, name, quiet)

    def check(self, right: Right, name: str = CLUSTER_NAME) -> None:
        """Raises KafkaError with the code of the refusal if the client has not got a right."""
        if not self.may(right, name):
            raise KafkaError(right.refusal)

    def refusal(self, right: Right, name: str = CLUSTER_NAME) -> ErrorCode:
        """The code of the refusal if the client has not got a right, else NONE."""
        return ErrorCode.NONE if self.may(right, name) else right.refusal

    def may_any(self, right: Right) -> bool:
        """Whether there may be a resource to which the client has a right."""
        authorizer, connection = self.connection.authorizer, self.connection
        if authorizer is None:
            return True
        self._check_table(right)
        return authorizer.allows_any(connection.principal, connection.host, right, api=self.api.name)

    def allowed(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The operations that the client may do to a resource, as a bit field (KIP-430)."""
        authorizer, connection = self.connection.authorizer, self.connection
        who = connection.principal, connection.host
        return sum(
            1 << each.operation
            for each in rights_of(kind)
            if authorizer is None or authorizer.allows(*who, each, name, quiet=True)
        )

    def _asks(self, authorizer: Authorizer, right: Right, name: str, quiet: bool) -> bool:
        self._check_table(right)
        connection = self.connection
        return authorizer.allows(connection.principal, connection.host, right, name, api=self.api.name, quiet=quiet)

    def _check_table(self, right: Right) -> None:
        if right not in self.api.rights:
            raise RuntimeError(f"the table of rights does not say that {self.api.name} needs {right}")


#: Given an API and what serves it, what does so instead.
Around = Callable[["Api", Callable[["Context", Any], Answer]], Callable[["Context", Any], Answer]]


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
    handle: Handler
    uses: int
    changes: int
    needs: tuple[Need, ...]
    rights: frozenset[Right]
    for_nodes: bool


class Endpoint:
    """One API in one version: all that a request of it needs, looked up once."""

    __slots__ = ("_encode", "_head", "api", "decode", "flexible", "handle", "version")

    def __init__(self, api: Api, version: int, handle: Callable[[Context, Any], Answer], *, reads: bool = True) -> None:
        """`handle` is the handler with its parts. Requests that are not to be read (`reads`) are None for it."""
        self.api, self.handle, self.version = api, handle, version
        self.flexible = version >= api.flexible_from
        self.decode: Callable[[bytes | memoryview, int, int], tuple[Any, int]]
        self.decode = message_codec(api.request, version).decode if reads else _unread
        self._encode = message_codec(api.response, version).encode
        # Length and correlation id; in flexible versions an empty tag block, except for ApiVersions (KIP-511).
        self._head = struct.Struct(">iix" if self.flexible and api.key != API_VERSIONS else ">ii")

    def encode(self, response: Message, context: Context) -> list[SizedChunk]:
        """A response as it is sent: in one piece, unless it carries log data that goes from file to socket.

        An answer of ours that does not fit its message is our fault, not the client's: raises RuntimeError.
        """
        if context.bill is not None:
            context.settle()
        if context.throttle_ms and hasattr(response, "throttle_time_ms"):
            response = replace(response, throttle_time_ms=context.throttle_ms)
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
            return [self._head.pack(before + sum(map(len, chunks)), context.correlation_id), *chunks]
        return [self._head.pack(before + len(body), context.correlation_id) + body]

    def given(self, response: Message, context: Context) -> None:
        """A response has been handed to somebody in this process: it is not sent."""


class BareTokens(Endpoint):
    """SaslAuthenticate without requests and answers around its tokens: a length, and as many bytes (KIP-12)."""

    __slots__ = ()

    def __init__(self, api: Api, handle: Callable[[Context, Any], Answer]) -> None:
        super().__init__(api, 0, handle)
        self.decode = _token

    def encode(self, response: Message, context: Context) -> list[SizedChunk]:
        """A refusal has no answer: the connection ends."""
        assert isinstance(response, SaslAuthenticateResponse)
        if response.error_code:
            return []
        return [struct.pack(">i", len(response.auth_bytes)) + response.auth_bytes]


def _token(frame: bytes | memoryview, position: int, most: int) -> tuple[SaslAuthenticateRequest, int]:
    return SaslAuthenticateRequest(bytes(frame[position:])), len(frame)


def _unread(frame: bytes | memoryview, position: int, most: int) -> tuple[None, int]:
    return None, position


APIS: dict[int, Api] = {}


def api(
    request: type[Message],
    response: type[Message],
    *,
    uses: int,
    changes: int = NOTHING,
    versions: Versions | None = None,
    advertised: Versions | None = None,
    for_nodes: bool = False,
) -> Callable[[Handler], Handler]:
    """Register a handler for all of Kafka's versions of a message, or for those named.

    `uses` and `changes` are of `broker.net.order`; all use the ACLs. What a handler changes, it need not name as used
    to come after earlier changes of the same kind: the handlers are called in order. What is `for_nodes`, nodes ask of
    each other, and no client is told of.
    """

    def register(handle: Handler) -> Handler:
        spec = request.__wire__
        served = versions or spec.versions
        if spec.key in APIS:
            raise ValueError(f"API key {spec.key} is registered twice")
        name = request.__name__.removesuffix("Request")
        if name not in NEEDS:
            raise ValueError(f"{name} has no entry in the table of rights (broker/security/table.py)")
        APIS[spec.key] = Api(
            key=spec.key,
            name=name,
            versions=served,
            advertised=advertised or served,
            flexible_from=spec.flexible.first,
            request=request,
            response=response,
            handle=handle,
            uses=uses | ACLS,
            changes=changes,
            needs=NEEDS[name],
            rights=RIGHTS[name],
            for_nodes=for_nodes,
        )
        return handle

    return register


class Handlers:
    """What serves requests in one broker: the registered handlers, each with the parts of the broker that it uses."""

    def __init__(
        self, parts: Parts, endpoint: Callable[..., Endpoint] = Endpoint, around: Around | None = None
    ) -> None:
        """`endpoint` makes what serves one API in one version; `around`, where there are other nodes, what serves it in
        place of its handler. Without it, what only nodes ask is not served.

        Raises TypeError for a handler that wants a part that is not there."""
        self._endpoint = endpoint
        served = [api for api in APIS.values() if around is not None or not api.for_nodes]
        self._handles = {api.key: _bound(api, parts) for api in served}
        if around is not None:
            self._handles = {key: around(APIS[key], handle) for key, handle in self._handles.items()}
        self._endpoints: dict[tuple[int, int], Endpoint] = {}

    def bare_tokens(self) -> Endpoint:
        """What takes the tokens of SASL that come without a request around them."""
        return BareTokens(APIS[SASL_AUTHENTICATE], self._handles[SASL_AUTHENTICATE])

    def find(self, key: int, version: int) -> Endpoint:
        """What serves a request. Raises ProtocolError where Kafka closes the connection: unknown key or version.

        A client that asks for an unknown version of ApiVersions is answered in version 0, so that it can step down;
        its request is not read (KIP-511).
        """
        endpoint = self._endpoints.get((key, version))
        if endpoint is None:
            api = APIS.get(key)
            if api is None or key not in self._handles:
                raise ProtocolError(f"unknown API key {key}")
            handle = self._handles[key]
            if version not in api.versions:
                if key == API_VERSIONS:
                    return self._endpoint(api, 0, handle, reads=False)
                raise ProtocolError(f"{api.name} has no version {version} here")
            endpoint = self._endpoints[key, version] = self._endpoint(api, version, handle)
        return endpoint


def _bound(api: Api, known: Parts) -> Callable[[Context, Any], Answer]:
    """A handler with its parts: whatever it takes behind the context and the request."""
    handle = api.handle
    parts = known.bound(handle, after=2, name=f"the handler of {api.name}")
    if not parts:
        return handle
    if len(parts) == 1:
        (part,) = parts
        return lambda context, request: handle(context, request, part)
    return lambda context, request: handle(context, request, *parts)
