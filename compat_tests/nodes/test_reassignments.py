"""kafka-reassign-partitions.sh moves partitions of three nodes by its own plan, and cancels a move."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.admin import create_topic
from barnabas.client.cluster import Cluster
from barnabas.wire.errors import ErrorCode
from compat_tests.history.moves import reassign
from compat_tests.java import tools
from compat_tests.nodes.broker import Nodes
from compat_tests.nodes.test_supervisor import PARTITIONS, produced, values
from compat_tests.tools import missing
from compat_tests.waiting import until

pytestmark = [
    pytest.mark.skipif(bool(missing("java")), reason=str(missing("java"))),
    pytest.mark.long,
]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path) as server:
        with Cluster(server.address) as cluster:
            create_topic(cluster, "t", {}, partitions=PARTITIONS)
        yield server


def run(nodes: Nodes, *arguments: str) -> str:
    done = tools.run(tools.REASSIGNMENTS, "--bootstrap-server", nodes.servers, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def leaders(nodes: Nodes) -> dict[int, int]:
    with Cluster(nodes.servers) as cluster:
        return cluster.leaders("t")


def test_a_plan_that_the_tool_makes_is_carried_out_and_taken_back(nodes: Nodes, tmp_path: Path) -> None:
    produced(nodes.servers, "t", "before")
    before = leaders(nodes)
    wanted, plan, back = (tmp_path / name for name in ("topics.json", "plan.json", "back.json"))
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": "t"}]}))
    told = run(nodes, "--topics-to-move-json-file", str(wanted), "--broker-list", "2,3", "--generate")
    current, proposed = re.findall(r"^\{.*\}$", told, re.MULTILINE)
    back.write_text(current)
    plan.write_text(proposed)

    told = run(nodes, "--reassignment-json-file", str(plan), "--execute")
    assert "Successfully started partition reassignments" in told
    verified(nodes, plan)
    assert set(leaders(nodes).values()) == {2, 3}
    produced(nodes.servers, "t", "after")
    assert values(nodes.servers, "t", 2 * PARTITIONS) == ["after"] * PARTITIONS + ["before"] * PARTITIONS

    run(nodes, "--reassignment-json-file", str(back), "--execute")
    verified(nodes, back)
    assert leaders(nodes) == before
    assert "No partition reassignments found" in run(nodes, "--list")
    assert nodes.stop() == 0
    assert nodes.errors() == []


def verified(nodes: Nodes, plan: Path) -> None:
    """Run the tool's --verify, as its users do, until all moves are done."""
    while "is still in progress" in (told := run(nodes, "--reassignment-json-file", str(plan), "--verify")):
        pass
    assert len(re.findall(r"Reassignment of partition t-\d is completed", told)) == PARTITIONS, told


def test_a_move_that_cannot_go_on_is_listed_and_given_up(nodes: Nodes, tmp_path: Path) -> None:
    """The node that leads the partition is dead and is not restarted, so it cannot give the partition away."""
    produced(nodes.servers, "t", "before")
    before = leaders(nodes)
    index = next(index for index, leader in before.items() if leader == 2)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": index, "replicas": [3]}]}))
    nodes.expected_errors.append("node.ended")
    assert nodes.process
    nodes.process.send_signal(signal.SIGSTOP)
    nodes.send(2, signal.SIGKILL)

    with Cluster(nodes.address) as cluster:  # the tool's --execute would ask the dead node for its folders
        assert reassign(cluster, {("t", index): 3}) == {("t", index): ErrorCode.NONE}
    assert f"t-{index}: replicas: 2,3. adding: 3. removing: 2." in run(nodes, "--list")
    planned = ("--reassignment-json-file", str(plan), "--preserve-throttles")
    assert "is still in progress" in run(nodes, *planned, "--verify")
    told = run(nodes, *planned, "--cancel")
    assert f"Successfully cancelled partition reassignment for: t-{index}" in told

    nodes.process.send_signal(signal.SIGCONT)
    until(lambda: "No partition reassignments found" in run(nodes, "--list"), "it is back where it was")
    assert leaders(nodes) == before
    produced(nodes.servers, "t", "after")
    assert nodes.stop() == 0
    assert nodes.errors() == []
