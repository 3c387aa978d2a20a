"""Two brokers in one process, each with its own data directory and metadata, that act as two nodes of a cluster.

Each one's metadata says that the other leads the partitions that it does lead. A request from one to the other goes
directly to its handlers, without a socket.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import barnabas.broker.apis  # noqa: F401  registers the handlers
from barnabas.broker.between.peers import Unreachable
from barnabas.broker.net import large
from barnabas.broker.net.connection import Connection
from barnabas.broker.registry import APIS, Context, Handlers
from barnabas.broker.security.principals import NODE
from barnabas.broker.tests.client import Client
from barnabas.broker.tests.conftest import Running, Start
from barnabas.broker.tests.test_nodes import change, moved
from barnabas.broker.tests.test_transactions import Producer
from barnabas.wire.errors import ErrorCode
from barnabas.wire.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.types import Message

#: Node 1 coordinates the transactions, node 2 the groups; each leads one partition of the topic "a".
COORDINATOR, OTHER = 1, 2
LEADERS = {("a", 0): COORDINATOR, ("a", 1): OTHER}


class NodeConnection:
    """The connection of another node, as handlers see it."""

    def __init__(self) -> None:
        self.principal, self.client, self.host, self.listener = NODE, str(NODE), "127.0.0.1", "PLAINTEXT"
        self.authorizer = None


class Wire:
    """`Peers` of both nodes: passes requests on by the node's id."""

    def __init__(self) -> None:
        self.nodes: dict[int, Running] = {}
        self.asked: list[tuple[int, Message]] = []
        self.down: set[int] = set()
        #: Awaited before a request reaches its node, and after it was answered there.
        self.before: Callable[[Message], Awaitable[None]] | None = None
        self.after: Callable[[Message], Awaitable[None]] | None = None

    async def ask(self, node: int, request: Message, version: int | None = None) -> Any:
        self.asked.append((node, request))
        if self.before is not None:
            await self.before(request)
        if node in self.down:
            raise Unreachable
        handlers = self.nodes[node].node._parts._known[Handlers]
        assert isinstance(handlers, Handlers)
        key = request.__wire__.key
        endpoint = handlers.find(key, APIS[key].versions.last if version is None else version)
        context = Context(
            cast(Connection, NodeConnection()), endpoint.api, endpoint.version, 0, "node", time.perf_counter()
        )
        answer = await large.given(endpoint.handle(context, request))
        if self.after is not None:
            await self.after(request)
        return answer

    def count(self, kind: type[Message]) -> int:
        return sum(isinstance(request, kind) for _, request in self.asked)


class Pair:
    """The two nodes, with a client of each."""

    def __init__(self, wire: Wire, first: Client, second: Client) -> None:
        self.wire, self.nodes, self.clients = wire, wire.nodes, {COORDINATOR: first, OTHER: second}

    def client_of(self, topic: str, partition: int) -> Client:
        return self.clients[LEADERS[topic, partition]]

    def producer(self, name: str = "t", *, is_v2: bool = True) -> Across:
        return Across(self, name, is_v2=is_v2)

    async def lead(self, topic: str, partition: int, node: int) -> None:
        """Tell both nodes who leads a partition."""
        for running in self.nodes.values():
            await change(running, moved(running.node.metadata.topics[topic].topic_id, partition, node))


class Across(Producer):
    """A producer that sends to the leaders, with sequences of its own for each partition."""

    def __init__(self, pair: Pair, name: str, *, is_v2: bool) -> None:
        super().__init__(pair.clients[COORDINATOR], name, is_v2=is_v2)
        self.pair = pair
        self.sequences: dict[tuple[str, int], int] = {}

    async def begin(self, *places: tuple[str, int]) -> None:
        """In version 1 of transactions, add the partitions first."""
        for topic, partition in () if self.is_v2 else places:
            topics = [AddPartitionsToTxnTopic(topic, [partition])]
            asked = AddPartitionsToTxnRequest([], self.name, self.id, self.epoch, topics)
            while True:
                answer = await self.client.ask(asked, 3)
                code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
                if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    break
            assert not code

    async def write(self, value: bytes, topic: str = "a", partition: int = 0, *, version: int | None = None) -> Any:
        self.sequence = self.sequences.get((topic, partition), 0)
        request = self.request(value, topic, partition)
        client = self.pair.client_of(topic, partition)
        answer = (await client.ask(request, version or (12 if self.is_v2 else 11))).responses[0].partition_responses[0]
        if not answer.error_code:
            self.sequences[topic, partition] = self.sequence
        return answer

    async def offset(self, offset: int, group: str = "g", *, version: int | None = None, **member: Any) -> ErrorCode:
        coordinator, self.client = self.client, self.pair.clients[OTHER]
        try:
            return await super().offset(offset, group, version=version, **member)
        finally:
            self.client = coordinator

    async def end(self, *, committed: bool = True) -> ErrorCode:
        code = await super().end(committed=committed)
        if self.is_v2 and not code:
            self.sequences.clear()
        return code


@asynccontextmanager
async def pair(start: Start, tmp_path: Any, **settings: str) -> AsyncIterator[Pair]:
    """Both nodes, with the topic "a"."""
    wire = Wire()
    settings = {"offsets_topic_num_partitions": "3", "transaction_state_log_num_partitions": "3", **settings}
    async with (
        start(log_dir=str(tmp_path / "1"), node_id="1", **settings) as first,
        start(log_dir=str(tmp_path / "2"), node_id="2", **settings) as second,
        await first.client() as of_first,
        await second.client() as of_second,
    ):
        wire.nodes.update({COORDINATOR: first, OTHER: second})
        for client in (of_first, of_second):
            await client.create_topic("a", 2)
            await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
            await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]))
        both = Pair(wire, of_first, of_second)
        for running in wire.nodes.values():
            running.node.transactions.connect(wire)
        of_ids = second.node.metadata.topics[TRANSACTIONS_TOPIC]
        await change(second, *(moved(of_ids.topic_id, partition, COORDINATOR) for partition in of_ids.partitions))
        group = first.node.groups.coordinator.partition_of("g")
        await change(first, moved(first.node.metadata.topics[OFFSETS_TOPIC].topic_id, group, OTHER))
        for (topic, partition), node in LEADERS.items():
            for running in wire.nodes.values():
                if running.node.metadata.node_id != node:
                    await change(running, moved(running.node.metadata.topics[topic].topic_id, partition, node))
        yield both
