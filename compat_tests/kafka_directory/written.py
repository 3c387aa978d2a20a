"""The content that the tests write to one broker and expect in another one: records of every kind, groups, settings."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from barnabas.client.admin import topic_configs
from barnabas.client.cluster import Cluster
from barnabas.client.groups import committed
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.client.produce import Batch, produce
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.produce import PartitionProduceResponse
from compat_tests.apache_kafka import ApacheKafka
from compat_tests.broker_process import Server
from compat_tests.waiting import until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: The coordinators have few partitions, the cleaner and snapshots run often, and segments are small.
KAFKA_SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "100",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
}
#: The records of these topics have old timestamps, and none may expire.
TOPICS = {
    "codecs": {"retention.ms": "-1", "segment.bytes": "1048576", "index.interval.bytes": "256"},
    "transactional": {"retention.ms": "-1"},
    "compacted": {
        "cleanup.policy": "compact",
        "segment.bytes": "1048576",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "300",
        "delete.retention.ms": "100000000",
    },
    "deleted": {"retention.ms": "-1"},
    "empty": {"max.message.bytes": "2000000"},
    "idempotent": {"retention.ms": "-1"},
}
PARTITIONS = 3
TIME = 1_700_000_000_000
TRANSACTION_TIMEOUT_MS = 600_000

Seen = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]


class Idempotent(NamedTuple):
    """A producer id and its last batch of three records: the batch's first sequence and its base offset."""

    producer_id: int
    producer_epoch: int
    sequence: int
    offset: int


def admin(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.address, "log_level": 0})


def create(server: Server) -> None:
    news = [NewTopic(name, PARTITIONS, 1, config=configs) for name, configs in TOPICS.items()]
    client = admin(server)  # the producer must stay alive as long as its delivery futures
    for made in client.create_topics(news).values():
        made.result(30)


def alter(server: Server, kind: ResourceType, name: str, configs: dict[str, str]) -> None:
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in configs.items()]
    client = admin(server)
    changed = client.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)])
    for done in changed.values():
        done.result(30)


def producer(server: Server, **settings: Any) -> Producer:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return Producer({"bootstrap.servers": server.address, "log_level": 0, "linger.ms": 1, **named})


def send(to: Producer, topic: str, words: list[bytes], at: int = TIME) -> None:
    """Write every word to every partition."""
    for number, word in enumerate(words):
        for partition in range(PARTITIONS):
            to.produce(
                topic,
                word,
                b"k%d" % number,
                partition,
                timestamp=at + number,
                headers=[("number", b"%d" % number)],
            )
    assert to.flush(30) == 0


def write_codecs(server: Server) -> None:
    """Write more than a segment."""
    for codec in CODECS:
        send(producer(server, compression_codec=codec), "codecs", [codec.encode() + bytes(900)] * 500)


def write_transactions(server: Server) -> Producer:
    """Write a committed, an aborted and an open transaction; returns the producer of the open one."""
    for name, ends in (("first", "commit_transaction"), ("second", "abort_transaction")):
        writer = producer(server, transactional_id=name)
        writer.init_transactions(30)
        writer.begin_transaction()
        send(writer, "transactional", [name.encode()] * 5)
        getattr(writer, ends)(30)
    writer = producer(server, transactional_id="third", transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
    writer.init_transactions(30)
    writer.begin_transaction()
    send(writer, "transactional", [b"open"] * 3)
    send(producer(server), "transactional", [b"plain"] * 3)
    return writer


def write_compacted(server: Server, folder: Path) -> None:
    """Write a compacted topic, until the log cleaner has cleaned it."""
    times = iter(range(TIME, TIME + 10_000_000, 1000))  # the timestamps of the records make segments roll
    for number in range(6):
        send(producer(server), "compacted", [b"%d" % number] * 40, next(times))

    def is_clean() -> bool:
        send(producer(server), "compacted", [b"more"], next(times))
        name = "cleaner-offset-checkpoint"
        checkpoints = [*folder.glob(name), *folder.glob(f"nodes/*/{name}")]
        return sum(each.read_text().count("compacted ") for each in checkpoints) == PARTITIONS

    until(is_clean, "the topic has been compacted")


def write_deleted(server: Server) -> None:
    send(producer(server), "deleted", [b"%d" % number for number in range(20)])
    places = [TopicPartition("deleted", partition, 7) for partition in range(PARTITIONS)]
    client = admin(server)
    for done in client.delete_records(places).values():
        done.result(30)


def idempotent_batch(one: Idempotent) -> bytes:
    records = [Record(b"k", b"%d" % (one.sequence + i), TIME) for i in range(3)]
    return build_batch(
        records, producer_id=one.producer_id, producer_epoch=one.producer_epoch, base_sequence=one.sequence
    )


def send_idempotent(server: Server, one: Idempotent) -> PartitionProduceResponse:
    with Cluster(server.address) as cluster:
        return produce(cluster, [Batch("idempotent", 0, idempotent_batch(one))])["idempotent", 0]


def write_idempotent(server: Server) -> Idempotent:
    with Cluster(server.address) as cluster:
        got = cluster.any(InitProducerIdRequest(transactional_id=None), InitProducerIdResponse)
    assert got.error_code == 0
    for sequence in (0, 3, 6):
        one = Idempotent(got.producer_id, got.producer_epoch, sequence, sequence)
        assert send_idempotent(server, one).error_code == 0
    return one


def join(server: Server, group: str, topic: str, position: int, **settings: Any) -> None:
    """Join a group, commit a position, and leave."""
    named = {key.replace("_", "."): value for key, value in settings.items()}
    consumer = Consumer(
        {"bootstrap.servers": server.address, "group.id": group, "enable.auto.commit": False, "log_level": 0, **named}
    )
    try:
        consumer.subscribe([topic])
        end = time.monotonic() + 60
        while len(consumer.assignment()) < PARTITIONS:
            assert time.monotonic() < end, f"a member of {group} has not got its partitions"
            consumer.poll(0.1)
        places = [TopicPartition(topic, partition, position + partition) for partition in range(PARTITIONS)]
        consumer.commit(offsets=places, asynchronous=False)
    finally:
        consumer.close()


def positions(server: Server, group: str, topic: str) -> dict[int, int]:
    with Cluster(server.address) as cluster:
        found = committed(cluster, group, [(topic, partition) for partition in range(PARTITIONS)])
        return {key[1]: value.offset for key, value in found.items()}


def records(server: Server, topic: str, isolation: str) -> list[Seen]:
    """Every record of a topic, in the order of partitions and offsets."""
    return _read(server, [topic], isolation)[topic]


def _read(server: Server, names: Iterable[str], isolation: str) -> dict[str, list[Seen]]:
    consumer = Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
    found: dict[str, list[Seen]] = {name: [] for name in names}
    left = {(name, partition) for name in found for partition in range(PARTITIONS)}
    try:
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in left])
        while left:
            message = consumer.poll(30)
            assert message is not None, f"nothing comes of {left}"
            if message.error():
                assert message.error().name() == "_PARTITION_EOF", message.error()
                left.discard((message.topic(), message.partition()))
                continue
            headers = tuple((name, bytes(value)) for name, value in message.headers() or ())
            at = message.timestamp()[1]
            seen = (message.partition(), message.offset(), at, message.key(), message.value(), headers)
            found[message.topic()].append(seen)
    finally:
        consumer.close()
    return {name: sorted(seen) for name, seen in found.items()}


class Topics(NamedTuple):
    """Topics by name, as clients see them."""

    configs: dict[str, dict[str, str]]
    ids: dict[str, bytes]
    partitions: dict[str, int]


class Content(NamedTuple):
    """All that a client can see; records by isolation and topic."""

    records: dict[str, dict[str, list[Seen]]]
    bounds: dict[str, list[tuple[int, int]]]
    topics: Topics


def bounds(server: Server) -> dict[str, list[tuple[int, int]]]:
    """The first offset and the end offset of each partition."""
    keys = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
    with Cluster(server.address) as cluster:
        first, last = list_offsets(cluster, keys, EARLIEST), list_offsets(cluster, keys, LATEST)
    return {topic: [(first[topic, n], last[topic, n]) for n in range(PARTITIONS)] for topic in TOPICS}


def topics(server: Server) -> Topics:
    with Cluster(server.address) as cluster:
        described = {each.name or "": each for each in cluster.metadata(None)}
        return Topics(
            topic_configs(cluster, described),
            {name: each.topic_id for name, each in described.items()},
            {name: len(each.partitions) for name, each in described.items()},
        )


def content(server: Server) -> Content:
    isolations = ("read_uncommitted", "read_committed")
    return Content({each: _read(server, TOPICS, each) for each in isolations}, bounds(server), topics(server))


def snapshotted(kafka: Server) -> None:
    """Make Kafka write a metadata snapshot: change a topic's settings until one is written."""
    folder = kafka.data_dir / "__cluster_metadata-0"
    count = iter(range(10_000))

    def is_there() -> bool:
        alter(kafka, ResourceType.TOPIC, "empty", {"retention.bytes": str(1_000_000 + next(count))})
        return any(folder.glob("*-*.checkpoint"))

    until(is_there, "Kafka has written a metadata snapshot")


_join_new = functools.partial(join, group_protocol="consumer")


def write_all(kafka: ApacheKafka) -> tuple[Producer, Idempotent]:
    """Write everything to a new Kafka; returns the producers that go on."""
    create(kafka)
    write_codecs(kafka)
    open_transaction = write_transactions(kafka)
    write_deleted(kafka)
    last = write_idempotent(kafka)
    join(kafka, "classic", "codecs", 10)
    _join_new(kafka, "modern", "codecs", 20)
    write_compacted(kafka, kafka.data_dir)
    snapshotted(kafka)
    alter(kafka, ResourceType.TOPIC, "deleted", {"max.message.bytes": "1234567"})  # after the snapshot
    alter(kafka, ResourceType.BROKER, "1", {"log.cleaner.threads": "2", "log.retention.ms": "700000000"})
    return open_transaction, last
