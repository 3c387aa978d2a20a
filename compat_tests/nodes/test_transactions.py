"""Transactions over partitions of all nodes; one node is killed: acknowledged steps hold, and producers go on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.nodes.broker import Nodes
from compat_tests.tools import missing
from compat_tests.transactions.processes import Producer
from compat_tests.waiting import until

PARTITIONS = 6
#: kafka-python speaks version 1 of transactions, the Java client version 2.
QUICK = ("kafka-python", "send", 2)
CASES = [
    pytest.param(*case, marks=[] if case == QUICK else [pytest.mark.long])
    for case in product(("kafka-python", "java"), ("send", "end"), (1, 2, 3))
]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path) as server:
        yield server


def committed(servers: str, topic: str, count: int) -> list[str]:
    """The values that read_committed consumers see, once there are `count`."""
    settings = {"group.id": "seen", "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[str] = []

    def more() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append((message.value() or b"").decode())
        return len(found) >= count

    until(more, f"{count} records of {topic}")
    consumer.close()
    return sorted(found)


@pytest.mark.parametrize(("client", "step", "node"), CASES)
def test_a_transaction_goes_on_where_a_node_was_killed(nodes: Nodes, client: str, step: str, node: int) -> None:
    if reason := missing(client):
        pytest.skip(reason)
    admin = AdminClient({"bootstrap.servers": nodes.servers})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(60)
    nodes.expected_errors.append("node.ended")
    with Producer(client, nodes.servers, "killed") as producer:
        producer.do("init")
        for number, how in enumerate(("commit", "abort", "commit")):
            producer.do("begin")
            for index in range(PARTITIONS):
                producer.do("send", "t", index, f"{number}-{index}")
            if (step, number) == ("send", 1):
                nodes.kill_node(node)
            producer.do("offset", "t", 0, number + 1, "g")
            producer.do(how)
            if (step, number) == ("end", 1):
                nodes.kill_node(node)
    expected = [f"{number}-{index}" for number in (0, 2) for index in range(PARTITIONS)]
    assert committed(nodes.servers, "t", len(expected)) == expected
    consumer = Consumer({"bootstrap.servers": nodes.servers, "group.id": "g", "isolation.level": "read_committed"})
    (place,) = consumer.committed([TopicPartition("t", 0)], timeout=60)
    assert place.offset == 3
    consumer.close()
    assert nodes.stop() == 0
    assert nodes.errors() == []
