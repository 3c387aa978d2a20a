"""The supervisor restarts nodes that die, and all nodes stop together; one process can then use the directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.broker_process import Barnabas
from compat_tests.nodes.broker import Nodes
from compat_tests.tools import ROOT
from compat_tests.waiting import until

PARTITIONS = 6


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path) as server:
        yield server


def made(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)


def produced(servers: str, topic: str, value: str) -> None:
    """Write a record to each partition, and check that all are acknowledged."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "enable.idempotence": True})
    for index in range(PARTITIONS):
        producer.produce(topic, value, partition=index, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(60) == 0
    assert failures == [None] * PARTITIONS


def values(servers: str, topic: str, count: int) -> list[str]:
    """The values of a topic, once it has `count` records."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "values", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[str] = []

    def more() -> bool:
        messages = consumer.consume(count - len(found), timeout=0.5)
        found.extend((each.value() or b"").decode() for each in messages if each.error() is None)
        return len(found) >= count

    until(more, f"{count} records of {topic}")
    consumer.close()
    return sorted(found)


@pytest.mark.parametrize("node", [1, 2, 3])
def test_a_node_that_is_killed_is_started_again_with_all_that_it_had(nodes: Nodes, node: int) -> None:
    made(nodes.servers, "t")
    produced(nodes.servers, "t", "before")
    others = {each: pid for each, pid in nodes.pids().items() if each != node}
    nodes.expected_errors.append("node.ended")
    nodes.kill_node(node)
    produced(nodes.servers, "t", "after")
    assert values(nodes.servers, "t", 2 * PARTITIONS) == ["after"] * PARTITIONS + ["before"] * PARTITIONS
    assert {each: nodes.pids()[each] for each in others} == others, "the others were left alone"
    assert nodes.stop() == 0
    assert nodes.errors() == []


def test_a_node_that_hangs_is_killed_and_started_again(nodes: Nodes) -> None:
    made(nodes.servers, "t")
    before = nodes.pids()[2]
    nodes.send(2, signal.SIGSTOP)
    nodes.expected_errors += ["node.hangs", "node.ended"]
    until(lambda: nodes.pids().get(2) not in (None, before), "node 2 is another process")
    produced(nodes.servers, "t", "v")
    assert any("node.hangs node=2" in line for line in nodes.log_file.read_text().splitlines())
    assert nodes.stop() == 0


def test_a_stop_leaves_a_directory_that_one_process_takes_without_recovery(nodes: Nodes) -> None:
    made(nodes.servers, "t")
    produced(nodes.servers, "t", "v")
    assert nodes.stop() == 0
    assert nodes.errors() == []
    assert not (nodes.data_dir / "nodes").exists()
    assert (nodes.data_dir / ".kafka_cleanshutdown").exists()
    one = Barnabas(nodes.folder)
    one.processes, one.port = 1, nodes.port
    with one:
        assert values(one.address, "t", PARTITIONS) == ["v"] * PARTITIONS
        assert one.stop() == 0
    with nodes:
        assert values(nodes.servers, "t", PARTITIONS) == ["v"] * PARTITIONS
        assert nodes.stop() == 0


def test_nodes_end_with_their_supervisor(nodes: Nodes) -> None:
    made(nodes.servers, "t")
    produced(nodes.servers, "t", "v")
    assert nodes.process
    pids = list(nodes.pids().values())
    os.kill(nodes.process.pid, signal.SIGKILL)
    nodes.process.wait()
    nodes.start()  # it waits until the old nodes have ended
    until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids), "the nodes have ended")
    assert values(nodes.servers, "t", PARTITIONS) == ["v"] * PARTITIONS
    assert nodes.stop() == 0


def test_all_are_killed_and_nothing_acknowledged_is_lost(nodes: Nodes) -> None:
    made(nodes.servers, "t")
    for number in range(3):
        produced(nodes.servers, "t", str(number))
        nodes.kill()
        nodes.start()
    expected = sorted(str(number) for number in range(3) for _ in range(PARTITIONS))
    assert values(nodes.servers, "t", 3 * PARTITIONS) == expected


def refused(*more: str) -> str:
    """The error of a start that must fail."""
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "serve", *more], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    return done.stderr


def test_what_cannot_be_started_says_why_in_one_line(nodes: Nodes, tmp_path: Path) -> None:
    other, listen = str(tmp_path / "other"), f"127.0.0.1:{nodes.port}"
    told = refused("--processes", "2", "--data-dir", str(nodes.data_dir), "--listen", "127.0.0.1:0")
    assert "is in use by another process" in told
    told = refused("--processes", "3", "--data-dir", other, "--listen", listen)
    assert all(f"barnabas: node {each}: Port" in told for each in (1, 2, 3)) or "is in use" in told
    told = refused("--processes", "3", "--data-dir", other, "--listen", "127.0.0.1:65534")
    assert told.strip().splitlines() == [
        "barnabas: Listener PLAINTEXT://127.0.0.1:65534: 3 nodes need the ports 65534 and up, and there are not enough"
    ]
    assert not list(tmp_path.glob("other/nodes/*/.lock"))


def test_the_ready_file_names_all_nodes(tmp_path: Path) -> None:
    ready = tmp_path / "ready"

    class Told(Nodes):
        def command(self) -> list[str]:
            return [*super().command(), "--ready-file", str(ready)]

    with Told(tmp_path) as server:
        assert ready.read_text().strip() == server.servers
        assert server.stop() == 0
    assert not ready.exists()


def test_a_client_may_begin_at_any_node(nodes: Nodes) -> None:
    made(nodes.servers, "t")
    for index in range(3):
        produced(f"127.0.0.1:{nodes.port + index}", "t", "v")
    assert len(values(f"127.0.0.1:{nodes.port + 2}", "t", 3 * PARTITIONS)) == 3 * PARTITIONS


def test_groups_and_commits_are_found_at_any_node(nodes: Nodes) -> None:
    made(nodes.servers, "t")
    for number in range(6):
        at = f"127.0.0.1:{nodes.port + number % 3}"
        consumer = Consumer({"bootstrap.servers": at, "group.id": f"g{number}"})
        consumer.commit(offsets=[TopicPartition("t", 0, number)], asynchronous=False)
        consumer.close()
    for number in range(6):
        at = f"127.0.0.1:{nodes.port + (number + 1) % 3}"
        consumer = Consumer({"bootstrap.servers": at, "group.id": f"g{number}"})
        try:
            (found,) = consumer.committed([TopicPartition("t", 0)], timeout=60)
        except KafkaException as error:
            raise AssertionError(f"group g{number}: {error}") from None
        assert found.offset == number
        consumer.close()
