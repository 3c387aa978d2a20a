"""A locked broker in use: our own commands, query topics and streams, and the programs around Kafka."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from bench.spark_kafka import connector
from compat_tests.ecosystem import test_kafka_connect as connect
from compat_tests.ecosystem.jvm import Program
from compat_tests.security.locked import LockedBroker
from compat_tests.tools import ROOT, missing
from compat_tests.waiting import DEADLINE, until

ALICE = ("alice", "alice-secret")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedBroker]:
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
    with LockedBroker(tmp_path_factory.mktemp("locked"), **settings) as broker:
        broker.add_user(*ALICE)
        yield broker
        assert not broker.errors()


def rdkafka(broker: LockedBroker, user: str = "admin", password: str = "admin-secret") -> dict[str, str]:
    return {
        "bootstrap.servers": broker.address,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(broker.ca),
    }


def write(broker: LockedBroker, topic: str, *values: str) -> None:
    producer = Producer(rdkafka(broker))
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def read(broker: LockedBroker, topic: str, count: int) -> list[str]:
    consumer = Consumer(rdkafka(broker) | {"group.id": f"reads-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[str] = []
    while len(found) < count:
        message = consumer.poll(60)
        assert message is not None, f"{len(found)} records in {topic}"
        assert message.error() is None, message.error()
        found.append(message.value().decode())
    consumer.close()
    return found


def alice(broker: LockedBroker, *words: str, check: bool = True) -> str:
    return broker.ask(*words, user=ALICE[0], password=ALICE[1], check=check)


def test_our_own_commands_get_in_and_do_what_they_may(broker: LockedBroker, tmp_path: Path) -> None:
    said = broker.run("topics", "list", "-b", broker.address, check=False)
    assert "does this listener use TLS" in said or "closed the connection" in said
    assert "refuses the login" in broker.ask("topics", "list", password="wrong", check=False)
    broker.ask("topics", "create", "own")
    write(broker, "own", "first")
    assert alice(broker, "topics", "list") == ""
    assert "TOPIC_AUTHORIZATION_FAILED" in alice(broker, "consume", "own", "--from-beginning", check=False)
    broker.allow("alice", "--operation", "Read", "--topic", "own")
    assert alice(broker, "topics", "list") == "own\n"
    assert alice(broker, "consume", "own", "--from-beginning", "--max", "1") == "first\n"
    assert "User:alice" in broker.ask("acls", "list", "--topic", "own")
    assert "alice" in broker.ask("users", "list")
    users = [json.loads(line) for line in broker.ask("users", "ls", "--json").splitlines()]
    assert next(each for each in users if each["user"] == "alice")["mechanisms"]["SCRAM-SHA-512"] >= 4096
    assert "_AUTHORIZATION_FAILED" in alice(broker, "users", "list", check=False)
    log = broker.log_file.read_text()
    assert re.search(r"authorizer\.denied (node=\d )?principal=User:alice", log)
    assert not {word for word in (ALICE[1], "admin-secret", "wrong") if word in log.replace("wrong version", "")}


@pytest.mark.long
def test_query_topics_and_streams_act_for_who_made_them(broker: LockedBroker) -> None:
    """The streams driver logs in over TLS, without any setup by the operator."""
    schema = ("--config", "barnabas.value.format=json", "--config", "barnabas.value.schema=ts TIMESTAMP, n INT")
    broker.ask("topics", "create", "readings", *schema)
    query = "SELECT n FROM readings WHERE n > 0"
    stream = "EVENT_TIME ts AS SELECT count(*) AS c FROM readings INTERVAL(10s)"
    for name, key, text in (
        ("hot", "barnabas.query", query),
        ("counted", "barnabas.stream", stream),
    ):
        broker.allow("alice", "--operation", "Create", "--operation", "Write", "--topic", name)
        make = ("topics", "create", name, "--config", f"{key}={text}")
        assert "User:alice may not READ readings" in alice(broker, *make, check=False)
    broker.allow("alice", "--operation", "Read", "--topic", "readings")
    alice(broker, "topics", "create", "hot", "--config", f"barnabas.query={query}")
    alice(broker, "topics", "create", "counted", "--config", f"barnabas.stream={stream}")

    def reading(second: int, n: int) -> str:
        return json.dumps({"ts": f"2024-01-01T00:{second // 60:02}:{second % 60:02}Z", "n": n})

    write(broker, "readings", reading(0, 1), reading(5, 0), reading(60, 2), reading(120, 0))
    assert read(broker, "hot", 2) == ['{"n":1}', '{"n":2}']
    assert json.loads(read(broker, "counted", 1)[0])["c"] == 2

    def denied(name: str) -> bool:
        return "barnabas.denied" in broker.ask("topics", "describe", name)

    broker.forbid("alice", "--operation", "Read", "--topic", "readings")
    until(lambda: denied("hot") and denied("counted"), "both are denied")
    write(broker, "readings", reading(180, 3), reading(300, 0))
    until(lambda: "DENIED" in broker.ask("sql", "SHOW QUERIES"), "the query says why", 60)
    until(lambda: "DENIED" in broker.ask("sql", "SHOW STREAMS"), "the stream says why", 60)
    broker.allow("alice", "--operation", "Read", "--topic", "readings")
    until(lambda: not denied("hot") and not denied("counted"), "both may go on")
    assert read(broker, "hot", 1) == ['{"n":3}']
    assert [json.loads(each)["c"] for each in read(broker, "counted", 2)] == [1, 1]


@pytest.mark.long
def test_kafka_streams_with_acls(broker: LockedBroker, tmp_path: Path) -> None:
    if reason := missing("ecosystem"):
        pytest.skip(reason)
    for name in ("lines", "counts"):
        broker.ask("topics", "create", name)
    broker.allow("alice", "--operation", "Read", "--topic", "lines")
    broker.allow("alice", "--operation", "Write", "--topic", "counts")
    mine = ("--resource-pattern-type", "prefixed")
    broker.allow("alice", "--operation", "All", "--topic", "wordcount", "--group", "wordcount", *mine)
    broker.allow("alice", "--operation", "All", "--transactional-id", "wordcount", *mine)
    broker.allow("alice", "--operation", "IdempotentWrite", "--cluster")
    source = Path(connect.__file__).with_name("WordCount.java")
    words = (source, broker.address, tmp_path / "state", "lines", "counts", broker.config(*ALICE))
    with Program(tmp_path / "program", "RUNNING", *words) as program:
        write(broker, "lines", "a b", "a c")
        assert len(read(broker, "counts", 4)) == 4
        program.stop()
    assert "UNCAUGHT" not in program.log_file.read_text()


@pytest.mark.long
def test_kafka_connect_with_acls(broker: LockedBroker, tmp_path: Path) -> None:
    if reason := missing("ecosystem"):
        pytest.skip(reason)
    mine = ("--resource-pattern-type", "prefixed")
    broker.allow("alice", "--operation", "All", "--topic", "connect", "--group", "connect", *mine)
    broker.allow("alice", "--operation", "All", "--transactional-id", "connect", *mine)
    broker.allow("alice", "--operation", "All", "--topic", "connected")
    broker.allow("alice", "--operation", "IdempotentWrite", "--cluster")
    files = connect.Files(tmp_path)
    files.grow(10)
    with connect.Worker(tmp_path / "worker", broker.address, broker.security(*ALICE).properties()) as worker:
        connect.create_connectors(worker, files, topic="connected")
        files.follow()
        assert files.arrived() == files.lines


@pytest.mark.long
def test_mirror_maker_with_acls(broker: LockedBroker, tmp_path: Path) -> None:
    """It mirrors a cluster to itself under two names, which is enough to show that it can log in."""
    if reason := missing("ecosystem"):
        pytest.skip(reason)
    broker.ask("topics", "create", "orders")
    write(broker, "orders", "one", "two")
    broker.allow("alice", "--operation", "All", "--topic", "*", "--group", "*", "--cluster", "--transactional-id", "*")
    security = broker.security(*ALICE).properties()
    settings = {
        "clusters": "near,far",
        **{f"{name}.bootstrap.servers": broker.address for name in ("near", "far")},
        **{f"{name}.{key}": value for name in ("near", "far") for key, value in security.items()},
        "near->far.enabled": "true",
        "topics": "orders",
        "replication.factor": "1",
        **{f"{kind}.topic.replication.factor": "1" for kind in ("checkpoints", "heartbeats", "offset-syncs")},
        **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
        "offset.storage.partitions": "2",
        "status.storage.partitions": "2",
        "refresh.topics.interval.seconds": "1",
        "consumer.auto.offset.reset": "earliest",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": "http://127.0.0.1:0",
        "plugin.discovery": "service_load",
    }
    file = tmp_path / "mm2.properties"
    file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    with Program(tmp_path / "mirror", "Kafka MirrorMaker started", main, file, level="info"):
        until(lambda: "near.orders" in broker.ask("topics", "list"), "the mirrored topic is there")
        assert read(broker, "near.orders", 2) == ["one", "two"]


@pytest.mark.long
def test_sparks_connector_with_acls(broker: LockedBroker) -> None:
    try:
        connector()
    except OSError as error:
        pytest.skip(f"the jars of Spark's Kafka connector cannot be had: {error}")
    broker.ask("topics", "create", "sparks")
    write(broker, "sparks", "one", "two")

    broker.allow("alice", "--operation", "Read", "--topic", "sparks")
    broker.allow("alice", "--operation", "All", "--group", "spark-kafka", "--resource-pattern-type", "prefixed")
    words = ("compat_tests.security.spark_reads", broker.address, "sparks", str(broker.config(*ALICE)))
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.stdout == "one\ntwo\n", done.stderr
