"""MirrorMaker 2 in both directions between barnabas and Apache Kafka, with the groups' offsets translated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as Place
from kafka.structs import OffsetAndMetadata

from compat_tests.apache_kafka import ApacheKafka
from compat_tests.broker_process import Barnabas, Server
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.ecosystem.jvm import Program
from compat_tests.tools import missing
from compat_tests.waiting import until

PARTITIONS = 2
RECORDS = 200  # in each partition
READ = 120  # the records of each partition that the group has read


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[dict[str, Server]]:
    """The clusters by their names in MirrorMaker's configuration."""
    if reason := missing("ecosystem"):
        pytest.skip(reason)
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with (
        Barnabas(tmp_path / "barnabas", settings) as barnabas,
        ApacheKafka(tmp_path / "kafka", settings, heap="256m") as kafka,
    ):
        yield {"barnabas": barnabas, "kafka": kafka}


class MirrorMaker(Program):
    """MirrorMaker in a process of its own, in both directions."""

    name = "MirrorMaker"

    def __init__(self, folder: Path, clusters: dict[str, Server]) -> None:
        names = sorted(clusters)
        settings = {
            "clusters": ",".join(names),
            **{f"{name}.bootstrap.servers": server.address for name, server in clusters.items()},
            "barnabas->kafka.enabled": "true",
            "kafka->barnabas.enabled": "true",
            "topics": "orders",
            "groups": "billing",
            "replication.factor": "1",
            **{f"{kind}.replication.factor": "1" for kind in ("checkpoints.topic", "heartbeats.topic")},
            "offset-syncs.topic.replication.factor": "1",
            **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
            "offset.storage.partitions": "2",
            "status.storage.partitions": "2",
            "offset.lag.max": "0",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "1",
            "emit.checkpoints.interval.seconds": "1",
            "emit.heartbeats.interval.seconds": "1",
            "refresh.topics.interval.seconds": "1",
            "refresh.groups.interval.seconds": "1",
            "sync.topic.configs.interval.seconds": "1",
            "offset.flush.interval.ms": "500",
            "consumer.auto.offset.reset": "earliest",
            **{f"{name}.exactly.once.source.support": "enabled" for name in names},
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": "http://127.0.0.1:0",
            "plugin.discovery": "service_load",
        }
        folder.mkdir(parents=True)
        file = folder / "mm2.properties"
        file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        super().__init__(folder, "Kafka MirrorMaker started", main, file, level="info")


def write(server: Server, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": server.address})
    for partition in range(PARTITIONS):
        for number in range(first, first + count):
            producer.produce(
                topic, f"{server.name} {number}", key=f"{partition}", partition=partition, headers={"h": "1"}
            )
    assert producer.flush(20) == 0


def read(server: Server, topic: str, count: int) -> list[Message]:
    """Read a topic to its end, and until there are `count` records."""
    settings = {"bootstrap.servers": server.address, "group.id": "r", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "fetch.wait.max.ms": 10, "log_level": 0})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[Message] = []
    at_end: set[int | None] = set()
    while len(found) < count or len(at_end) < PARTITIONS:
        message = consumer.poll(60)
        assert message is not None, f"{len(found)} records in {topic}"
        error = message.error()
        if error is None:
            found.append(message)
            at_end.discard(message.partition())
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end.add(message.partition())
    consumer.close()
    return found


def commit(server: Server, offset: int) -> None:
    """Commit the group's offset in each partition. This client waits for a coordinator that has just started."""
    consumer = KafkaConsumer(bootstrap_servers=server.address, group_id="billing")
    places = {Place("orders", number): OffsetAndMetadata(offset, "", -1) for number in range(PARTITIONS)}
    consumer.commit(places)
    consumer.close()


def unread(server: Server, topic: str) -> list[str] | None:
    """The records that the group would read next in a topic; None while it has no position there."""
    settings = {"bootstrap.servers": server.address, "group.id": "billing", "isolation.level": "read_committed"}
    consumer = Consumer(
        {**settings, "enable.partition.eof": True, "fetch.wait.max.ms": 10, "log_level": 0, "enable.auto.commit": False}
    )
    places = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], 20)
    if any(place.offset < 0 for place in places):
        return None
    consumer.assign(places)
    found, at_end = [], 0
    while at_end < PARTITIONS:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            found.append(f"{message.partition()}: {message.value().decode()}")
        else:
            at_end += 1
    consumer.close()
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("break_", ["stop", "kill", "kill the broker"])
def test_records_and_offsets_go_both_ways(clusters: dict[str, Server], break_: str, tmp_path: Path) -> None:
    ways = [("barnabas", "kafka"), ("kafka", "barnabas")]
    for server in clusters.values():
        ConfluentDriver(server.address).create_topic("orders", PARTITIONS, {"retention.ms": "86400000"})
        write(server, "orders", 0, RECORDS)
        commit(server, RECORDS)

    def has_read_all(source: str, target: str) -> None:
        """Wait until the group has no unread record in the mirrored topic either."""
        until(lambda: unread(clusters[target], f"{source}.orders") == [], f"the group's offsets are on {target}")

    mirror = MirrorMaker(tmp_path / "mirror", clusters)
    with mirror:
        for source, target in ways:
            read(clusters[target], f"{source}.orders", PARTITIONS * RECORDS)
            has_read_all(source, target)
        if break_ == "stop":
            mirror.stop()
        elif break_ == "kill":
            mirror.kill()
        else:
            clusters["barnabas"].kill()
            clusters["barnabas"].start()
        for server in clusters.values():
            write(server, "orders", RECORDS, RECORDS)
            commit(server, RECORDS + READ)
        if break_ != "kill the broker":
            mirror.start()
        for source, target in ways:
            there, topic = clusters[target], f"{source}.orders"
            name = clusters[source].name
            found = read(there, topic, PARTITIONS * 2 * RECORDS)
            for partition in range(PARTITIONS):
                values = [(each.value(), each.headers()) for each in found if each.partition() == partition]
                assert values == [(f"{name} {number}".encode(), [("h", b"1")]) for number in range(2 * RECORDS)]
            left = unread(there, topic)
            assert left is not None
            assert set(left) >= set(unread(clusters[source], "orders") or ()) != set(), "nothing is passed over"
            commit(clusters[source], 2 * RECORDS)
            has_read_all(source, target)
            assert ConfluentDriver(there.address).topic_config(topic)["retention.ms"] == "86400000"
    assert not clusters["barnabas"].errors()
