"""A test's own broker of several nodes, with real clients."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.testing import Broker, BrokerError
from barnabas.testing.tests.test_broker import lives
from compat_tests.waiting import until

SECONDS = 60.0
NODES = (1, 2, 3)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(processes=3, num_partitions=3) as made:
        yield made


def leaders(broker: Broker, topic: str) -> dict[int, int]:
    """By leader, a partition of a topic."""
    found = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(topic, SECONDS)
    return {part.leader: number for number, part in found.topics[topic].partitions.items()}


def send(broker: Broker, topic: str, partition: int, value: bytes) -> Producer:
    """Send a record without waiting; the producer keeps trying."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "enable.idempotence": True})
    producer.produce(topic, value, partition=partition)
    return producer


def values(broker: Broker, topic: str, partition: int) -> list[bytes | None]:
    """The records of a partition."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes | None] = []
    while (message := consumer.poll(SECONDS)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found


def test_each_node_leads_and_serves(broker: Broker) -> None:
    assert broker.nodes == list(NODES)
    assert broker.bootstrap_servers == ",".join(broker.address(node) for node in NODES)
    assert broker.address(1).endswith(f":{broker.port}")
    broker.create_topic("spread", 3)
    for node in NODES:
        found = AdminClient({"bootstrap.servers": broker.address(node)}).list_topics(timeout=SECONDS)
        assert {f"{each.host}:{each.port}" for each in found.brokers.values()} == set(
            broker.bootstrap_servers.split(",")
        )
    for node, partition in leaders(broker, "spread").items():
        assert send(broker, "spread", partition, b"%d" % node).flush(SECONDS) == 0
        assert values(broker, "spread", partition) == [b"%d" % node]


def test_a_node_stays_dead_until_it_is_started_and_the_others_serve(broker: Broker) -> None:
    broker.create_topic("killed", 3)
    led = leaders(broker, "killed")
    for partition in led.values():
        assert send(broker, "killed", partition, b"before").flush(SECONDS) == 0
    address = broker.address(2)
    broker.kill(2)
    assert not broker.is_running
    waits = send(broker, "killed", led[2], b"after")
    for node in (1, 3):
        assert send(broker, "killed", led[node], b"after").flush(SECONDS) == 0
    assert waits.flush(0.2) == 1
    broker.start(2)
    assert broker.is_running
    assert broker.address(2) == address
    assert waits.flush(SECONDS) == 0
    for partition in led.values():
        assert values(broker, "killed", partition) == [b"before", b"after"]


def test_a_node_hangs_and_goes_on(broker: Broker) -> None:
    broker.create_topic("hanging", 3)
    led = leaders(broker, "hanging")
    with broker.hanging(3):
        waits = send(broker, "hanging", led[3], b"1")
        assert send(broker, "hanging", led[2], b"1").flush(SECONDS) == 0
        assert waits.flush(0.2) == 1
    assert waits.flush(SECONDS) == 0
    assert values(broker, "hanging", led[3]) == [b"1"]


def test_one_node_has_a_frozen_disk(broker: Broker) -> None:
    broker.create_topic("frozen", 3)
    led = leaders(broker, "frozen")
    with broker.frozen_disk(2):
        waits = send(broker, "frozen", led[2], b"1")
        assert send(broker, "frozen", led[1], b"1").flush(SECONDS) == 0
        assert waits.flush(0.2) == 1
    assert waits.flush(SECONDS) == 0


def test_answers_of_one_node_are_lost(broker: Broker) -> None:
    broker.create_topic("lost", 3)
    led, before = leaders(broker, "lost"), broker.log.count("the answer to Produce is lost")
    broker.lose_answers(node=3)
    for node in NODES:
        assert send(broker, "lost", led[node], b"1").flush(SECONDS) == 0
        assert values(broker, "lost", led[node]) == [b"1"]
    assert broker.log.count("the answer to Produce is lost") == before + 1


def test_all_nodes_crash_and_come_back_and_a_single_process_takes_what_they_leave(tmp_path: Path) -> None:
    with Broker(processes=3, data_dir=tmp_path) as broker:
        broker.create_topic("t", 3)
        for partition in range(3):
            assert send(broker, "t", partition, b"1").flush(SECONDS) == 0
        addresses = broker.bootstrap_servers
        broker.kill()
        broker.start()
        assert broker.bootstrap_servers == addresses
        broker.stop()
        assert not broker.is_running
        with Broker(data_dir=tmp_path) as alone:
            assert [values(alone, "t", partition) for partition in range(3)] == [[b"1"]] * 3


def test_no_other_broker_gets_the_directory(tmp_path: Path) -> None:
    with Broker(processes=2, data_dir=tmp_path):
        for other in (Broker(processes=2, data_dir=tmp_path), Broker(data_dir=tmp_path)):
            with pytest.raises(BrokerError, match="did not start"):
                other.start()
            other.close()


def test_a_node_that_does_not_exist(broker: Broker) -> None:
    with pytest.raises(ValueError, match="the nodes are 1, 2, 3"):
        broker.kill(4)
    with pytest.raises(ValueError, match="at least one"):
        Broker(processes=0)
    with pytest.raises(ValueError, match="a whole number"):
        Broker(node_id="first")
    assert Broker(processes=2, node_id=7).nodes == [7, 8]


def test_the_nodes_end_with_whoever_has_made_them() -> None:
    text = (
        "from barnabas.testing import Broker\nimport time\nbroker = Broker(processes=2)\nbroker.start()\n"
        "print(*(each.popen.pid for each in broker._processes.values()), flush=True)\ntime.sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = parent.stdout.readline().split()
        assert len(pids) == 2
        parent.kill()
    until(lambda: not any(lives(int(pid)) for pid in pids), "the nodes are gone", SECONDS)
