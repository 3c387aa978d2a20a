"""Compacted topics as clients see them, cleaned by the broker and by hand; Kafka's own tool reads the files."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as Place

from compat_tests.broker_process import Barnabas
from compat_tests.crash.segments import dump_with_kafka, segment_files
from compat_tests.java import tools
from compat_tests.tools import ROOT, missing
from compat_tests.waiting import until

SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "20000",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS, ROUNDS = 40, 60
Table = dict[bytes, bytes]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Barnabas]:
    with Barnabas(tmp_path / "broker", SETTINGS) as server:
        yield server
        server.stop()
        assert not server.errors()


def create(server: Barnabas, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.address})
    new = NewTopic(
        topic, 1, config={"cleanup.policy": "compact", "segment.bytes": "30000", "index.interval.bytes": "64"}
    )
    admin.create_topics([new])[topic].result(30)


def write(server: Barnabas, topic: str) -> Table:
    """Write every key many times, with every codec, and delete some; returns the table that a reader must end with."""
    table: Table = {}
    for number, codec in enumerate(CODECS):
        producer = Producer(
            {
                "bootstrap.servers": server.address,
                "compression.type": codec,
                "enable.idempotence": number % 2 == 0,
                "linger.ms": 1,
            }
        )
        for each in range(ROUNDS):
            for key_number in range(KEYS):
                key = b"key-%d" % key_number
                if (each + key_number) % 17 == 0 and key_number % 4 == 0:
                    producer.produce(topic, None, key)
                    table.pop(key, None)
                else:
                    table[key] = b"%s %d %d" % (codec.encode(), each, key_number) + b"." * 40
                    producer.produce(topic, table[key], key)
            producer.flush(30)
    return table


def table_of(pairs: Iterator[tuple[bytes, bytes | None]] | list[tuple[bytes, bytes | None]]) -> Table:
    table: Table = {}
    for key, value in pairs:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table


def read_by_confluent(server: Barnabas, topic: str) -> Table:
    consumer = Consumer(
        {"bootstrap.servers": server.address, "group.id": "g", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes, bytes | None]] = []
    last = -1
    while (message := consumer.poll(30)) is not None and not message.error():
        assert message.offset() > last
        last = message.offset()
        found.append((message.key(), message.value()))
    consumer.close()
    return table_of(found)


def read_by_kafka_python(server: Barnabas, topic: str) -> Table:
    consumer = KafkaConsumer(bootstrap_servers=server.address, consumer_timeout_ms=30_000)
    place = Place(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    end = consumer.end_offsets([place])[place]
    found: list[tuple[bytes, bytes | None]] = []
    while consumer.position(place) < end:
        for records in consumer.poll(1000).values():
            found += [(record.key, record.value) for record in records]
    consumer.close()
    return table_of(found)


def read_by_java(server: Barnabas, topic: str, count: int) -> Table:
    done = tools.run(
        tools.CONSOLE_CONSUMER,
        *("--bootstrap-server", server.address, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(count), "--property", "print.key=true", "--timeout-ms", "30000"),
    )
    assert done.returncode == 0, done.stderr
    pairs = [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]
    return table_of([(key.encode(), None if value == "null" else value.encode()) for key, value in pairs])


def cleaned(server: Barnabas, topic: str) -> int:
    """The offset up to which the broker has cleaned, as it reports it."""
    told = re.findall(rf"log\.cleaned (?:node=\d )?topic={topic} .*to_offset=(\d+)", server.log_file.read_text())
    return int(told[-1]) if told else -1


def active_base(server: Barnabas, topic: str) -> int:
    return int(segment_files(server.data_dir, topic, 0)[-1].stem)


def clean_by_hand(server: Barnabas, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barnabas", "log", "clean", str(server.data_dir), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_every_client_ends_with_the_last_values_and_kafka_reads_every_file(server: Barnabas) -> None:
    create(server, "keyed")
    want = write(server, "keyed")
    until(lambda: cleaned(server, "keyed") >= active_base(server, "keyed"), "all is cleaned")
    assert read_by_confluent(server, "keyed") == want
    assert read_by_kafka_python(server, "keyed") == want
    size = sum(path.stat().st_size for path in segment_files(server.data_dir, "keyed", 0))
    assert size < 150_000, "of more than 300,000 bytes"
    server.stop()
    has_java = not missing("java")
    if has_java:
        check_files(server, "keyed")
    done = clean_by_hand(server, "keyed")
    assert done.returncode == 0, done.stderr
    assert "keyed-0:" in done.stdout
    assert re.search(r"1 partitions, \d+ bytes saved", done.stdout)
    assert "nothing to clean" in clean_by_hand(server, "keyed-0").stdout
    if has_java:
        check_files(server, "keyed")
    server.start()
    assert read_by_confluent(server, "keyed") == want
    if has_java:
        found = dump_with_kafka(segment_files(server.data_dir, "keyed", 0), dense=False)
        assert read_by_java(server, "keyed", len(re.findall(r"\| offset: ", found))) == want
    refused = clean_by_hand(server, "keyed")
    assert refused.returncode == 1
    assert "in use by another process" in refused.stderr


def check_files(server: Barnabas, topic: str) -> None:
    """Check that Kafka's tool finds no error in the segments and their indexes."""
    logs = segment_files(server.data_dir, topic, 0)
    dump_with_kafka(logs, dense=False)
    indexes = [str(path.with_suffix(suffix)) for path in logs[:-1] for suffix in (".index", ".timeindex")]
    done = tools.run(tools.DUMP_LOG, "--files", ",".join(indexes), "--index-sanity-check")
    assert done.returncode == 0, done.stderr
    passed = done.stdout.count("passed sanity check")
    assert passed >= len(indexes) // 2, done.stdout  # all time indexes; an offset index of few records is empty
    assert passed + done.stdout.count("is empty") == len(indexes), done.stdout


def test_committed_offsets_take_as_much_room_as_there_are_positions(server: Barnabas) -> None:
    create(server, "source")
    consumer = Consumer({"bootstrap.servers": server.address, "group.id": "committer"})
    for offset in range(3000):
        consumer.commit(offsets=[TopicPartition("source", 0, offset % 1000)], asynchronous=False)
    until(lambda: cleaned(server, "__consumer_offsets") >= active_base(server, "__consumer_offsets"), "cleaned")
    files = segment_files(server.data_dir, "__consumer_offsets", 0)
    assert sum(path.stat().st_size for path in files[:-1]) < 2000
    server.stop()
    server.start()
    (found,) = consumer.committed([TopicPartition("source", 0)], 30)
    assert found.offset == 999
    consumer.close()
    refused = clean_by_hand(server, "nowhere")
    assert refused.returncode == 1


def test_what_log_clean_refuses(tmp_path: Path) -> None:
    server = Barnabas(tmp_path / "broker")
    done = clean_by_hand(server)
    assert done.returncode == 1
    assert done.stderr == f"barnabas: {server.data_dir} is not a data directory: it has no whole meta.properties\n"
    with server:
        admin = AdminClient({"bootstrap.servers": server.address})
        admin.create_topics([NewTopic("plain", 1)])["plain"].result(30)
        server.stop()
    done = clean_by_hand(server, "plain")
    assert done.stderr == "barnabas: topic plain is not compacted: its cleanup.policy is delete\n"
    done = clean_by_hand(server, "absent")
    assert done.stderr == f"barnabas: there is no topic or partition absent in {server.data_dir}\n"
    assert clean_by_hand(server).returncode == 0
