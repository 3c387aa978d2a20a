"""A visitor as a client in memory: Kafka requests go to the broker's own handlers, without a socket.

    asker = Asker(broker, visitor)
    answer = await asker.ask(MetadataRequest(topics=None))

So the same code as for other clients decides what a visitor may see and change, checks settings and reports errors: the
handlers, with the table of rights. A handler knows its client by `Context.connection`. Here this is the asker, which
has the attributes that handlers use. Requests follow each other as on a connection, so they keep its order. Other nodes
are asked for their data on behalf of the visitor (`routing`).

Source: decision 58.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from time import thread_time
from typing import TYPE_CHECKING, Any, cast

import trio

from barnabas.broker.between.envelopes import Sender, answer_in, envelope_of
from barnabas.broker.between.peers import Unreachable
from barnabas.broker.clock import Clock
from barnabas.broker.http.messages import Refused, Visitor
from barnabas.broker.http.routing import SHARED_WAIT_MS, Routing, joined
from barnabas.broker.identity import Identity
from barnabas.broker.jobs.owners import Owners
from barnabas.broker.jobs.queries import Queries
from barnabas.broker.jobs.streams import Streams
from barnabas.broker.log import EventLog
from barnabas.broker.metrics.watch import Watch
from barnabas.broker.net import large
from barnabas.broker.net.connections import Connections
from barnabas.broker.net.metering import Meter
from barnabas.broker.quotas.manager import QuotaManager
from barnabas.broker.registry import APIS, Context, Endpoint, Handlers
from barnabas.broker.security.operations import Right
from barnabas.broker.security.principals import client_of
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.workers import Yielder
from barnabas.storage.data_dir import DataDir
from barnabas.wire.acls import CLUSTER_NAME
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.wire.messages.fetch import FetchRequest, FetchResponse
from barnabas.wire.messages.list_groups import ListGroupsRequest
from barnabas.wire.messages.list_transactions import ListTransactionsRequest
from barnabas.wire.principal_data import PrincipalData
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Message

if TYPE_CHECKING:
    from barnabas.broker.net.connection import Connection

CLIENT_ID = "barnabas-console"
#: The longest time that an answer is delayed for a visitor who is over a quota.
MOST_THROTTLE_SECONDS = 30.0
#: How long to wait for the answer of another node.
NODE_SECONDS = 30.0
#: How long to wait for a coordinator that reads its log.
LOADING_SECONDS = 30.0
#: The times between two attempts, which double: Kafka's `retry.backoff.ms` and `retry.backoff.max.ms`.
FIRST_PAUSE, LAST_PAUSE = 0.1, 1.0


@dataclass(frozen=True, slots=True)
class Broker:
    """The parts of the broker that the console uses."""

    config: BrokerConfig
    identity: Identity
    handlers: Handlers
    owners: Owners
    quotas: QuotaManager
    queries: Queries
    streams: Streams
    connections: Connections
    data_dir: DataDir
    routing: Routing
    watch: Watch
    clock: Clock
    log: EventLog


class Asker:
    """One visitor, during one HTTP request. Handlers use it as a connection."""

    def __init__(self, broker: Broker, who: Visitor) -> None:
        listener = broker.identity.local_listener
        self.principal, self.host, self.listener, self.protocol = (
            who.principal,
            who.host,
            listener.name,
            listener.protocol,
        )
        self.client = self.origin = client_of(who.principal, who.host)
        self.port, self.login = 0, None
        self._broker, self._meter = broker, Meter(broker.quotas)
        self._throttled = 0.0
        self._yielder = Yielder()

    @property
    def authorizer(self) -> object:
        """The authorizer that decides what the visitor may do; None if there is none."""
        return self._broker.owners.authorizer

    def throttle(self, seconds: float) -> None:
        """Delay the answer, because the visitor is over a quota."""
        self._throttled = max(self._throttled, seconds)

    def may(self, right: Right, name: str = CLUSTER_NAME) -> bool:
        """Whether the visitor has a right. For data that no API reports, and for parts of a view that not everybody may
        see. A denial is not logged, because the view asks on its own."""
        authorizer = self._broker.owners.authorizer
        return authorizer is None or authorizer.allows(
            self.principal, self.host, right, name, api="Console", quiet=True
        )

    async def ask(self, request: Message, version: int | None = None, *, waits: bool = True) -> Any:
        """Send a request and return the answer. `version` is the API's last one by default.

        A coordinator that has just got a partition reads its log first. With `waits` it is asked again, as by Kafka's
        Admin client, until it has done so or `LOADING_SECONDS` are over. Raises Refused if another node has the data
        and does not answer.
        """
        key = request.__wire__.key
        endpoint = self._broker.handlers.find(key, APIS[key].versions.last if version is None else version)
        parts = self._broker.routing.split(request)
        message = await self._ask_all(endpoint, request, parts, waits=waits)
        if isinstance(message, FetchResponse) and self._broker.routing.here not in parts:
            await _wait_if_empty(request, message)
        if self._throttled:
            await trio.sleep(min(self._throttled, MOST_THROTTLE_SECONDS))
            self._throttled = 0.0
        await self._yielder()
        return message

    async def _ask_one(self, endpoint: Endpoint, node: int, request: Message, *, waits: bool) -> Message:
        """The answer of one node, which is asked again while it reads its log."""
        is_here, codes = node == self._broker.routing.here, _CODES.get(type(request)) if waits else None
        until, pause = trio.current_time() + LOADING_SECONDS, FIRST_PAUSE
        while True:
            message = await (self._ask_here(endpoint, request) if is_here else self._ask_there(endpoint, node, request))
            is_loading = codes is not None and ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in codes(message)
            if not is_loading or trio.current_time() > until:
                return message
            await trio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE)

    async def _ask_here(self, endpoint: Endpoint, request: Message) -> Message:
        connection = cast("Connection", self)
        context = Context(connection, endpoint.api, endpoint.version, 0, CLIENT_ID, time.perf_counter())
        bill, began = self._meter.bill(context), thread_time()
        answer = endpoint.handle(context, request)
        if bill is not None:
            self._meter.handled(bill, context, _size(request), thread_time() - began, has_answer=True)
        message = await large.given(answer)
        context.settle()
        endpoint.given(message, context)
        return message

    async def _ask_all(
        self, endpoint: Endpoint, request: Message, parts: Mapping[int, Message], *, waits: bool
    ) -> Message:
        if len(parts) == 1:
            ((node, part),) = parts.items()
            return await self._ask_one(endpoint, node, part, waits=waits)
        answers: dict[int, Message] = {}
        problems: list[Refused] = []

        async def ask(node: int, part: Message) -> None:
            try:
                answers[node] = await self._ask_one(endpoint, node, part, waits=waits)
            except Refused as error:
                problems.append(error)

        async with trio.open_nursery() as nursery:
            for node, part in parts.items():
                nursery.start_soon(ask, node, part)
        if problems:
            raise problems[0]
        return joined(request, [answers[node] for node in parts])

    async def _ask_there(self, endpoint: Endpoint, node: int, request: Message) -> Message:
        peers = self._broker.routing.peers
        assert peers is not None
        sender = Sender(PrincipalData(*self.principal), self.host, CLIENT_ID)
        try:
            with trio.fail_after(NODE_SECONDS):
                told = await peers.ask(node, envelope_of(endpoint.api, endpoint.version, request, sender))
            answer = answer_in(told, endpoint.api, endpoint.version)
        except (Unreachable, ProtocolError, trio.TooSlowError):
            why = f"node {node}, which has part of the data, does not answer: try again when all nodes serve"
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, why) from None
        self.throttle(getattr(answer, "throttle_time_ms", 0) / 1000)
        return answer


async def _wait_if_empty(request: Message, told: FetchResponse) -> None:
    """Other nodes do not wait for new records, so wait here before the visitor's client asks again."""
    assert isinstance(request, FetchRequest)
    if request.max_wait_ms and not any(part.records for topic in told.responses for part in topic.partitions):
        await trio.sleep(min(request.max_wait_ms, SHARED_WAIT_MS) / 1000)


def _size(request: Message) -> int:
    """The bytes of record batches in a request."""
    return sum(
        len(part.records or b"") for topic in getattr(request, "topic_data", ()) for part in topic.partition_data
    )


#: The error codes in the answers of coordinators to requests that change nothing. OffsetFetch is not among them: while
#: ZooKeeper is away, it answers that its coordinator is loading.
_CODES: Mapping[type[Message], Callable[[Any], Collection[int]]] = {
    ListGroupsRequest: lambda told: (told.error_code,),
    ListTransactionsRequest: lambda told: (told.error_code,),
    DescribeGroupsRequest: lambda told: {each.error_code for each in told.groups},
    DescribeTransactionsRequest: lambda told: {each.error_code for each in told.transaction_states},
}


_STATUS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: HTTPStatus.NOT_FOUND,
    ErrorCode.GROUP_ID_NOT_FOUND: HTTPStatus.NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: HTTPStatus.NOT_FOUND,
}


def check(code: int, what: str, message: str | None = None) -> None:
    """Raises Refused for an error code. `what` names the thing that the answer is about."""
    if code == ErrorCode.NONE:
        return
    known = ErrorCode(code)
    status = _STATUS.get(known, HTTPStatus.BAD_REQUEST)
    if known is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        message = "a node has just started and still reads this: try again"
    if known.name.endswith("AUTHORIZATION_FAILED"):
        status = HTTPStatus.FORBIDDEN
    raise Refused(status, f"{what[:300]}: {known.name}" + (f": {message}" if message else ""))
