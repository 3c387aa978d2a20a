"""Everyday code that relies on the order of a connection, on a disk with slow syncs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from compat_tests.pipelining.test_all_pairs import SlowDisk


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("slow")
    with SlowDisk(folder, {"log.flush.interval.messages": "1"}) as server:
        yield server.address


def test_a_commit_that_was_not_waited_for_is_committed(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("t", 1)])["t"].result(30)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False})
    try:
        place = TopicPartition("t", 0)
        consumer.assign([place])
        # From here on the client knows the coordinator.
        consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
        for offset in range(1, 40):
            consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=True)
            assert consumer.committed([place], 30)[0].offset == offset
    finally:
        consumer.close()


def test_a_topic_whose_creation_was_not_waited_for_is_described(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    # From here on the client knows the controller.
    admin.create_topics([NewTopic("first", 1)])["first"].result(30)
    for number in range(20):
        name = f"new-{number}"
        made = admin.create_topics([NewTopic(name, 1, config={"retention.ms": "77000"})])[name]
        resource = ConfigResource(ResourceType.TOPIC, name)
        described = admin.describe_configs([resource])[resource].result(30)
        assert described["retention.ms"].value == "77000"
        made.result(30)


def test_what_was_acknowledged_by_the_leader_is_below_the_watermark(address: str) -> None:
    """Produce with acks=1, and read the watermarks on another connection."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("acked", 1)])["acked"].result(30)
    producer = Producer({"bootstrap.servers": address, "acks": 1, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": address, "group.id": "w"})
    try:
        for number in range(1, 30):
            producer.produce("acked", b"v", partition=0)
            assert producer.flush(30) == 0
            assert consumer.get_watermark_offsets(TopicPartition("acked", 0), timeout=120)[1] == number
    finally:
        consumer.close()
