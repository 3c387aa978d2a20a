"""The commands against three nodes, given the address of any one of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from barnabas.wire.batch import HEADER_SIZE
from compat_tests.nodes.broker import Nodes
from compat_tests.nodes.test_supervisor import PARTITIONS, made, produced
from compat_tests.tools import ROOT


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A topic with records on all nodes, and a group that has read two records of each partition."""
    with Nodes(tmp_path_factory.mktemp("nodes")) as server:
        made(server.servers, "t")
        for value in ("a", "b", "c"):
            produced(server.servers, "t", value)
        consumer = Consumer(
            {"bootstrap.servers": server.servers, "group.id": "g", "auto.offset.reset": "earliest"}
            | {"enable.auto.commit": False, "max.poll.interval.ms": 300_000}
        )
        consumer.subscribe(["t"])
        seen = 0
        while seen < 3 * PARTITIONS:
            seen += sum(message.error() is None for message in consumer.consume(100, timeout=1))
        consumer.commit(asynchronous=False)
        consumer.close()
        yield server
        assert server.stop() == 0


def ran(nodes: Nodes, node: int, *words: str) -> str:
    """The output of a command that gets the address of one node."""
    address = f"127.0.0.1:{nodes.port + node - 1}"
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", *words, "-b", address], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("node", [1, 2, 3])
def test_any_node_tells_of_all(nodes: Nodes, node: int) -> None:
    shown = ran(nodes, node, "consume", "t", "--from-beginning", "--exit")
    assert sorted(shown.split()) == sorted("abc" * PARTITIONS)
    (topic,) = lines(ran(nodes, node, "topics", "list", "-l", "--json"))
    assert (topic["topic"], topic["partitions"], topic["records"]) == ("t", PARTITIONS, 3 * PARTITIONS)
    assert topic["bytes"] >= 3 * PARTITIONS * HEADER_SIZE, "the logs of all nodes"
    assert [each["group"] for each in lines(ran(nodes, node, "groups", "list", "--json"))] == ["g"]
    described = lines(ran(nodes, node, "groups", "describe", "g", "--json"))
    assert [(each["partition"], each["lag"]) for each in described] == [(index, 0) for index in range(PARTITIONS)]
    counted = ran(nodes, node, "sql", "SELECT count(*) AS n FROM t", "--format", "json")
    assert lines(counted.splitlines()[0]) == [{"n": 3 * PARTITIONS}]


def lines(text: str) -> list[dict[str, Any]]:
    """The objects of an output with one JSON object a line."""
    return [json.loads(line) for line in text.splitlines()]
