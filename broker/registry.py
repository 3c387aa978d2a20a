"""The APIs that are served. Each handler registers its message and versions, and ApiVersions answers with what is
there.

A handler is a plain function `handle(context, request, *parts)`. Its annotations name the parts of the broker that it
gets: `groups: Groups`, or a dataclass of several. It returns one of these:

- a response: it is sent at once, in the order of the connection's requests;
- an awaitable of one: the work that must keep the order of requests is done, and the rest may take time (an fsync, a
  long poll). The connection continues with later requests and sends the answers in order;
- a `DelayedResponse`: the same, but a callback completes the answer instead of a coroutine. It costs no task switch, so
  the most frequent of the delayed answers (acks=all, long polls) are of this kind;
- None: there is no answer (Produce with acks=0).

Each handler states which parts of the broker's state it `uses` and `changes`. By that, `broker.net.order` decides which
requests have to wait. `broker.security.table` says which rights the clients need, and the handler checks them with
`Context.may`.
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
#: The longest throttle time that an answer can carry.
MAX_THROTTLE_MS = 2**31 - 1

Answer = Message | DelayedResponse | Awaitable["Message | LargeResponse"] | None
#: `handle(context, request, *parts)`. The annotations say which parts of the broker it gets.
Handler = Callable[..., Answer]


class Context:
    """What a handler knows of its request: the API and its version, and the client.

    `throttle_ms` is how long the client is asked to send nothing more (KIP-219). It is put into the answer, whether
    that is made at once or later. `received_at` (seconds of `time.perf_counter`) is when the connection began to read
    the bytes that contain the request; metrics of durations begin there. `bill` is the cost of the request so far, if
    the client has quotas.
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
        """The client's identity, as its login or certificate has proved it."""
        return self.connection.principal

    def throttle(self, seconds: float) -> None:
        """Throttle a client over a quota: its answer carries the time, and its connection is not read meanwhile."""
        throttle_ms = min(round(seconds * 1000), MAX_THROTTLE_MS)
        if throttle_ms > self.throttle_ms:
            self.throttle_ms = throttle_ms
            self.connection.throttle(throttle_ms / 1000)

    def check_change(self, partitions: int, *, strict_since: int) -> None:
        """Check the quota before a topic is created or deleted, or grows. `partitions` is how many the change affects.

        Raises KafkaError if the client has made too many such changes. In versions before `strict_since`, it is only
        throttled.
        """
        if self.bill is None:
            return
        try:
            self.throttle(self.bill.quota.change(partitions, strict=self.version >= strict_since))
        except QuotaExceeded as error:
            self.throttle(error.wait)
            raise

    def paid(self, call: Callable[[], R]) -> Callable[[], R]:
        """Wrap a call, which a thread may run, so that its CPU is added to the cost of the request."""
        return call if self.bill is None else self.bill.paid(call)

    def paid_steps(self, work: Awaitable[R]) -> Awaitable[R]:
        """Wrap an awaitable so that its CPU is added to the cost of the request."""
        return work if self.bill is None else self.bill.paid_steps(work)

    def settle(self) -> None:
        """Called just before the answer is made: the cost of the request so far gives the client's throttle time."""
        if self.bill is not None and not self.bill.is_settled:
            self.bill.is_settled = True
            self.throttle(self.bill.spend())

    def settle_rest(self) -> None:
        """Called after the answer was made: the CPU used since `settle` delays the client's later requests."""
        if self.bill is not None:
            self.bill.spend()

    @property
    def client(self) -> str:
        """The name of the client whose share of common resources is used."""
        return self.connection.client

    def may(self, right: Right, name: str = CLUSTER_NAME, *, quiet: bool = False) -> bool:
        """Whether the client has a right to the topic, group or other resource of that name.

        A denial is logged, unless the caller asks with `quiet`: if another right is enough too, or for each entry of a
        list.
        """
        authorizer = self.connection.authorizer
        return authorizer is None or self._asks(authorizer, right, name, quiet)

    def check(self, right: Right, name: str = CLUSTER_NAME) -> None:
        """Raises KafkaError with the code of the refusal if the client does not have a right."""
        if not self.may(right, name):
            raise KafkaError(right.refusal)

    def refusal(self, right: Right, name: str = CLUSTER_NAME) -> ErrorCode:
        """The code of the refusal if the client does not have a right, otherwise NONE."""
        return ErrorCode.NONE if self.may(right, name) else right.refusal

    def may_any(self, right: Right) -> bool:
        """Whether the client may have a right to at least one resource."""
        authorizer, connection = self.connection.authorizer, self.connection
        if authorizer is None:
            return True
        self._check_table(right)
        return authorizer.allows_any(connection.principal, connection.host, right, api=self.api.name)

    def allowed(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The operations that the client may perform on a resource, as a bit field (KIP-430)."""
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


#: Takes an API and its handler, and gives the handler to use instead.
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
    """One API in one version: all that a request needs, looked up once."""

    __slots__ = ("_encode", "_head", "api", "decode", "flexible", "handle", "version")

    def __init__(self, api: Api, version: int, handle: Callable[[Context, Any], Answer], *, reads: bool = True) -> None:
        """`handle` is the handler with its parts. Unless `reads`, requests are not decoded: it gets None."""
        self.api, self.handle, self.version = api, handle, version
        self.flexible = version >= api.flexible_from
        self.decode: Callable[[bytes | memoryview, int, int], tuple[Any, int]]
        self.decode = message_codec(api.request, version).decode if reads else _unread
        self._encode = message_codec(api.response, version).encode
        # Length and correlation id; in flexible versions an empty tag block, except for ApiVersions (KIP-511).
        self._head = struct.Struct(">iix" if self.flexible and api.key != API_VERSIONS else ">ii")

    def encode(self, response: Message, context: Context) -> list[SizedChunk]:
        """A response as it is sent: in one piece, unless it carries log data that goes from file to socket.

        Raises RuntimeError for a response that does not fit its message: that is an error of the broker, not of the
        client.
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
        """Note that a response was given to a caller in this process and is not sent."""


class BareTokens(Endpoint):
    """SaslAuthenticate for bare tokens, without headers: a length, then the bytes of the token (KIP-12)."""

    __slots__ = ()

    def __init__(self, api: Api, handle: Callable[[Context, Any], Answer]) -> None:
        super().__init__(api, 0, handle)
        self.decode = _token

    def encode(self, response: Message, context: Context) -> list[SizedChunk]:
        """A refusal sends no answer: the connection is closed."""
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
    """Register a handler for all of Kafka's versions of a message, or for the given `versions`.

    `uses` and `changes` are flags of `broker.net.order`; every handler also uses the ACLs. A state that a handler
    changes need not be in `uses` too: handlers are called in order, so it comes after earlier changes anyway. APIs that
    are `for_nodes` are only for other nodes; clients are not told of them.
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
    """The registered handlers of one broker, each with the parts of the broker that it takes."""

    def __init__(
        self, parts: Parts, endpoint: Callable[..., Endpoint] = Endpoint, around: Around | None = None
    ) -> None:
        """`endpoint` makes the object that serves one API in one version. With other nodes, `around` gives the handler
        to use instead of each registered one; without it, the APIs for nodes are not served.

        Raises TypeError for a handler that takes a part that does not exist."""
        self._endpoint = endpoint
        served = [api for api in APIS.values() if around is not None or not api.for_nodes]
        self._handles = {api.key: _bound(api, parts) for api in served}
        if around is not None:
            self._handles = {key: around(APIS[key], handle) for key, handle in self._handles.items()}
        self._endpoints: dict[tuple[int, int], Endpoint] = {}

    def bare_tokens(self) -> Endpoint:
        """The endpoint for SASL tokens that are sent without a request around them."""
        return BareTokens(APIS[SASL_AUTHENTICATE], self._handles[SASL_AUTHENTICATE])

    def find(self, key: int, version: int) -> Endpoint:
        """The endpoint for a request. Raises ProtocolError where Kafka closes the connection: unknown key or version.

        A request for an unknown version of ApiVersions is answered in version 0 and is not decoded, so that the client
        can use an older version (KIP-511).
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
    """A handler with its parts: all that it takes after the context and the request."""
    handle = api.handle
    parts = known.bound(handle, after=2, name=f"the handler of {api.name}")
    if not parts:
        return handle
    if len(parts) == 1:
        (part,) = parts
        return lambda context, request: handle(context, request, part)
    return lambda context, request: handle(context, request, *parts)
