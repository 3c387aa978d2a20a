"""Real consumers move between ZooKeeper, the broker and Apache Kafka, and read each record exactly once on the way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.admin import set_broker_config
from barnabas.client.cluster import Cluster
from barnabas.client.produce import Batch, produce
from barnabas.wire.batch import Record, build_batch
from compat_tests.aiokafka.driver import AiokafkaDriver
from compat_tests.apache_kafka import ApacheKafka
from compat_tests.broker_process import Barnabas, Server
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.driver import Driver, wait_for_records
from compat_tests.java import tools
from compat_tests.java.driver import JavaDriver
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.kafkajs.driver import KafkajsDriver
from compat_tests.offsets.commands import Znodes, new_topic, offsets, place
from compat_tests.tools import ROOT, missing
from compat_tests.waiting import until

OLD = 40  # the number of records that the old consumer has read
DRIVERS = [
    ConfluentDriver,
    KafkaPythonDriver,
    AiokafkaDriver,
    pytest.param(KafkajsDriver, marks=pytest.mark.slow),
    pytest.param(JavaDriver, marks=pytest.mark.slow),
]


class Feed:
    """A topic of one partition that gets numbered records; `count` is its end."""

    def __init__(self, servers: list[Server], topic: str) -> None:
        self.topic, self.count = topic, 0
        self._servers = servers
        for server in servers:
            new_topic(server, topic, 1)

    def more(self, count: int) -> int:
        """Write more records; returns the new end."""
        records = [Record(None, b"%d" % n, 1_700_000_000_000 + n) for n in range(self.count, self.count + count)]
        for server in self._servers:
            with Cluster(server.address) as cluster:
                told = produce(cluster, [Batch(self.topic, 0, build_batch(records))], acks=-1)
                assert told[self.topic, 0].error_code == 0
        self.count += count
        return self.count


@pytest.fixture(scope="module")
def znodes(zookeeper: object) -> Iterator[Znodes]:
    made = Znodes(zookeeper, "/clients")  # type: ignore[arg-type]
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(znodes: Znodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    settings = {"zookeeper.connect": znodes.connect, "barnabas.zookeeper.timeout.ms": "5000"}
    with Barnabas(tmp_path_factory.mktemp("barnabas"), settings) as made:
        yield made
        assert made.errors() == []


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    if reason := missing("java"):
        pytest.skip(reason)
    with ApacheKafka(tmp_path_factory.mktemp("kafka")) as made:
        yield made


def driven(kind: type[Driver], address: str) -> Driver:
    if kind.tool and (reason := missing(kind.tool)):
        pytest.skip(reason)
    return kind(address)


@pytest.mark.parametrize("kind", DRIVERS)
def test_a_group_moves_from_zookeeper_to_the_broker_and_back_while_it_reads(
    kind: type[Driver], server: Barnabas, znodes: Znodes, tmp_path: Path
) -> None:
    """Each record from the old consumer's position on is read once and in order, wherever the offsets are kept."""
    client = driven(kind, server.address)
    group = topic = f"moves-{kind.__name__}"
    feed = Feed([server], topic)
    feed.more(OLD + 10)
    znodes.put(group, 0, OLD, topic)
    with Cluster(server.address) as cluster:
        set_broker_config(cluster, {"offsets.storage": "kafka", "dual.commit.enabled": "true"})
    seen: list[int | None] = []
    for to in ("kafka", "zookeeper"):
        member = client.join(group, topic)
        wait_for_records(member, feed.count - OLD - len(seen))
        words = ("migrate", "-b", server.address, "--zookeeper", znodes.connect, "--group", group, "--leave-others")
        command = [sys.executable, "-m", "barnabas", "offsets", *words, "--to", to]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as migration:
            while migration.poll() is None:  # commits go on
                feed.more(5)
                wait_for_records(member, feed.count - OLD - len(seen))
            assert migration.stderr is not None
            said = migration.stderr.read()
        assert migration.returncode == 0, said
        assert "step 4" in said
        feed.more(7)
        wait_for_records(member, feed.count - OLD - len(seen))
        member.close()
        seen += [record.offset for record in member.records]
        if to == "zookeeper":
            assert znodes.get(group, 0, topic) == feed.count
        feed.more(5)
        seen += [record.offset for record in client.consume_in_group(group, topic, 5)]
        assert seen == list(range(OLD, feed.count))
    assert znodes.get(group, 0, topic) == feed.count, "an old consumer goes on there"
    client.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", DRIVERS)
def test_a_group_goes_on_in_the_other_cluster_and_comes_back(
    kind: type[Driver], server: Barnabas, kafka: ApacheKafka, tmp_path: Path
) -> None:
    here, there = driven(kind, kafka.address), driven(kind, server.address)
    with Cluster(server.address) as cluster:
        set_broker_config(cluster, {"offsets.storage": "kafka"})
    group = topic = f"clusters-{kind.__name__}"
    feed = Feed([kafka, server], topic)
    feed.more(30)
    seen = [record.offset for record in here.consume_in_group(group, topic, 10)]
    for source, target, client in ((kafka, server, there), (server, kafka, here)):
        journal = str(tmp_path / target.name)
        words = ("--from", place(source), "--to", place(target), "--group", group)

        def is_left(words: tuple[str, ...] = words, journal: str = journal) -> bool:
            _, said = offsets("copy", *words, "--journal", journal, status=None)
            return "member(s)" not in said

        until(is_left, "the consumer has left its group")
        seen += [record.offset for record in client.consume_in_group(group, topic, 10)]
    assert seen == list(range(30))
    here.close()
    there.close()


@pytest.mark.slow
def test_the_console_consumer_goes_on_where_an_old_consumer_was(server: Barnabas, znodes: Znodes) -> None:
    if reason := missing("java"):
        pytest.skip(reason)
    feed = Feed([server], "console")
    feed.more(OLD + 12)
    znodes.put("console", 0, OLD, "console")

    def read(count: int) -> list[str]:
        words = ("--topic", "console", "--group", "console", "--max-messages", str(count), "--timeout-ms", "30000")
        done = tools.run(tools.CONSOLE_CONSUMER, "--bootstrap-server", server.address, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    with Cluster(server.address) as cluster:
        set_broker_config(cluster, {"offsets.storage": "kafka", "dual.commit.enabled": "true"})
    assert read(4) == [str(OLD + n) for n in range(4)]
    assert znodes.get("console", 0, "console") == OLD + 4
    place = ("--group", "console", "--topic", "console", "--reset-offsets", "--to-offset", str(OLD + 2), "--execute")
    done = tools.run(tools.GROUPS, "--bootstrap-server", server.address, *place)
    assert done.returncode == 0, done.stderr
    assert znodes.get("console", 0, "console") == OLD + 2, "a rewind is in both places"
    assert read(2) == [str(OLD + n) for n in (2, 3)]
    words = ("migrate", "-b", server.address, "--zookeeper", znodes.connect, "--group", "console", "--leave-others")
    offsets(*words)
    assert read(4) == [str(OLD + n) for n in range(4, 8)]
    offsets(*words, "--to", "zookeeper")
    assert znodes.get("console", 0, "console") == OLD + 8
    assert read(4) == [str(OLD + n) for n in range(8, 12)]
    assert znodes.get("console", 0, "console") == OLD + 12
