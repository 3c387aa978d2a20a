"""The page with the metrics of all nodes. The test plays the other nodes."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.broker.between.peers import Unreachable
from barnabas.broker.clock import Clock
from barnabas.broker.http.metrics_of_nodes import NODE_SECONDS, MetricsOfNodes
from barnabas.broker.metadata.image import MetadataImage, NodeImage
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.node_metrics import NodeMetricsRequest, NodeMetricsResponse
from barnabas.wire.records.cluster_metadata import RegisterBrokerRecord
from barnabas.wire.types import Message

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Own:
    """The metrics of node 1."""

    def __init__(self) -> None:
        self.made = 0

    async def render(self, accept: str) -> tuple[bytes, str]:
        self.made += 1
        return b"# HELP own It is.\nown 1\n", CONTENT_TYPE


class Played:
    """The other nodes: 2 answers, 3 never does, 4 has ended, 5 cannot read its disk."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def ask(self, node: int, request: Message, version: int | None = None) -> Any:
        assert isinstance(request, NodeMetricsRequest)
        assert request.accept == CONTENT_TYPE
        self.asked.append(node)
        if node == 3:
            await trio.sleep_forever()
        if node == 4:
            raise Unreachable("it has ended")
        return NodeMetricsResponse(b"# HELP own It is.\nown 2\n", ErrorCode.KAFKA_STORAGE_ERROR if node == 5 else 0)


@pytest.fixture
def image() -> MetadataImage:
    found = MetadataImage(1, Clock())
    for node in range(1, 6):
        found.nodes[node] = NodeImage({}, None, RegisterBrokerRecord(broker_id=node))
    return found


async def test_a_node_that_hangs_is_left_out_in_time(image: MetadataImage, autojump_clock: object) -> None:
    own, peers = Own(), Played()
    pages = MetricsOfNodes(image, own, peers)  # type: ignore[arg-type]
    began = trio.current_time()
    text, content_type = await pages.render("")
    assert trio.current_time() - began == NODE_SECONDS
    assert content_type == CONTENT_TYPE
    lines = text.decode().splitlines()
    assert [line for line in lines if line.startswith("own")] == ['own{node="1"} 1', 'own{node="2"} 2']
    up = [line.rpartition(" ")[2] for line in lines if line.startswith("barnabas_node_up")]
    assert up == ["1.0", "1.0", "0.0", "0.0", "0.0"]


async def test_many_who_ask_at_once_cost_as_much_as_one(image: MetadataImage, autojump_clock: object) -> None:
    own, peers = Own(), Played()
    pages = MetricsOfNodes(image, own, peers)  # type: ignore[arg-type]
    texts = []

    async def ask() -> None:
        texts.append(await pages.render(""))

    async with trio.open_nursery() as nursery:
        for _ in range(1000):
            nursery.start_soon(ask)
    assert sorted(peers.asked) == [2, 3, 4, 5]
    assert len(set(texts)) == 1
