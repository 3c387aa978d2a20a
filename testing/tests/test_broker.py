"""A test's own broker, with real clients."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.testing import Broker, BrokerError
from compat_tests.waiting import until

SECONDS = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(num_partitions=3) as made:
        yield made


def send(broker: Broker, topic: str, value: bytes, **settings: object) -> Producer:
    """Send a record without waiting; the producer keeps trying."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, **settings})
    producer.produce(topic, value, partition=0)
    return producer


def values(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    """At least the first `count` records of a partition, and all others that are there."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value())
        elif message is not None and len(found) >= count:  # the end of the partition
            break
    consumer.close()
    return found


def test_a_client_writes_and_reads(broker: Broker) -> None:
    assert send(broker, "hello", b"world").flush(SECONDS) == 0
    assert values(broker, "hello", 1) == [b"world"]
    assert "topic.created" in broker.log or "hello" in broker.log


def test_properties_are_arguments(broker: Broker) -> None:
    send(broker, "three", b"x").flush(SECONDS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert len(admin.list_topics("three", SECONDS).topics["three"].partitions) == 3


def test_a_topic_has_its_own_settings(broker: Broker) -> None:
    broker.create_topic("five", 5, {"retention.ms": 1000})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert len(admin.list_topics("five", SECONDS).topics["five"].partitions) == 5


def test_a_property_that_is_none_is_told_with_the_brokers_words() -> None:
    with pytest.raises(BrokerError, match=r"(?s)did not start.*num\.partitions"):
        Broker(num_partitions="many").start()


def test_what_was_acknowledged_is_there_after_a_crash() -> None:
    with Broker() as broker:
        address = broker.bootstrap_servers
        send(broker, "kept", b"1").flush(SECONDS)
        broker.kill()
        assert not broker.is_running
        broker.start()
        assert broker.bootstrap_servers == address
        send(broker, "kept", b"2").flush(SECONDS)
        assert values(broker, "kept", 2) == [b"1", b"2"]
        broker.stop()
        assert not broker.is_running
        folder = broker.data_dir
        assert folder.exists()
    assert not folder.exists()


def test_data_stays_where_the_test_says(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        send(broker, "kept", b"1").flush(SECONDS)
    with Broker(data_dir=tmp_path / "data") as again:
        assert values(again, "kept", 1) == [b"1"]


def test_a_frozen_disk_acknowledges_nothing_and_answers_what_needs_none(broker: Broker) -> None:
    broker.create_topic("frozen")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    with broker.frozen_disk():
        producer = send(broker, "frozen", b"1")
        assert producer.flush(0.5) == 1
        assert "frozen" in admin.list_topics(timeout=SECONDS).topics
    assert producer.flush(SECONDS) == 0
    assert values(broker, "frozen", 1) == [b"1"]


def test_a_crash_thaws_a_frozen_disk() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        with broker.frozen_disk():
            producer = send(broker, "t", b"1", **{"enable.idempotence": True})
            assert producer.flush(0.2) == 1
            broker.kill()
        broker.start()
        assert producer.flush(SECONDS) == 0
        assert values(broker, "t", 1) == [b"1"]


def test_a_slow_disk_takes_its_time(broker: Broker) -> None:
    broker.create_topic("slow")
    with broker.slow_disk(0.3):
        began = time.monotonic()
        assert send(broker, "slow", b"1").flush(SECONDS) == 0
        assert time.monotonic() - began >= 0.3


def test_a_record_whose_answer_is_lost_is_there_and_comes_once_more_only_from_a_careless_producer(
    broker: Broker,
) -> None:
    for topic, careful in (("careful", True), ("careless", False)):
        broker.create_topic(topic)
        broker.lose_answers("Produce")
        assert send(broker, topic, b"1", **{"enable.idempotence": careful}).flush(SECONDS) == 0
    assert values(broker, "careful", 1) == [b"1"]
    assert values(broker, "careless", 2) == [b"1", b"1"]
    assert broker.log.count("the answer to Produce is lost") == 2


def test_faults_need_a_broker() -> None:
    with pytest.raises(BrokerError, match="not running"):
        Broker().lose_answers()


def test_the_loops_of_trio_and_asyncio_go_on_meanwhile() -> None:
    async def of_trio() -> int:
        async with Broker() as broker:
            return int(send(broker, "t", b"1").flush(SECONDS))

    async def of_asyncio() -> int:
        async with Broker() as broker:
            return int(send(broker, "t", b"1").flush(SECONDS))

    assert trio.run(of_trio) == 0
    assert asyncio.run(of_asyncio()) == 0


def test_the_broker_ends_with_whoever_has_made_it() -> None:
    text = (
        "from barnabas.testing import Broker\nimport time\nbroker = Broker()\nbroker.start()\n"
        "print(broker._processes[1].popen.pid, broker.data_dir, flush=True)\ntime.sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        assert Path(f"/proc/{pid}").exists()
        parent.kill()
    until(lambda: not lives(int(pid)) and not Path(folder).exists(), "the broker is gone", SECONDS)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_two_threads_may_ask_for_faults_at_once(broker: Broker) -> None:
    """Each waits for its own."""
    threads = [threading.Thread(target=broker.lose_answers, args=("Heartbeat", 0)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_a_broker_that_died_by_itself_is_told(broker: Broker) -> None:
    with Broker() as other:
        process = other._processes[1].popen
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with pytest.raises(BrokerError, match="not running"):
            other.lose_answers()
        other.start()
        assert other.is_running
