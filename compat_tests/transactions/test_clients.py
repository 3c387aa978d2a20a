"""Commit, abort, fencing, consume-transform-produce and crashes, with the transactional producer of every client."""

from __future__ import annotations

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from compat_tests.broker_process import Barnabas, Server
from compat_tests.cli.test_cli import run
from compat_tests.java import tools as java
from compat_tests.tools import missing
from compat_tests.transactions.processes import FENCED, READERS, Producer, committed, everyone_reads
from compat_tests.waiting import until


def test_every_consumer_sees_what_is_committed(client: str, server: Server, topic: str) -> None:
    with Producer(client, server.address, topic) as producer:
        producer.do("init")
        for number in range(6):
            producer.do("begin")
            for partition in (0, 1):
                for half in "ab":
                    producer.do("send", topic, partition, f"{number}{half}")
            producer.do("abort" if number % 2 else "commit")
    expected = ["0a", "0b", "2a", "2b", "4a", "4b"]
    everyone_reads(server.address, topic, expected, expected)


def test_a_producer_is_fenced_by_the_next_one(client: str, server: Server, topic: str) -> None:
    with Producer(client, server.address, topic) as old, Producer(client, server.address, topic) as new:
        old.do("init")
        old.do("begin")
        old.do("send", topic, 0, "old")
        new.do("init")
        new.do("begin")  # kafkajs asks for its producer id here
        said = [old.ask("send", topic, 0, "zombie"), old.ask("commit")]
        assert "ok" not in said
        assert FENCED[client] & set(said), said
        new.do("send", topic, 0, "new")
        new.do("commit")
    assert READERS["confluent-kafka"](server.address, topic, 1) == ["new"]


def test_consume_transform_produce(client: str, server: Server, topic: str) -> None:
    group = f"group.{topic}"
    with Producer(client, server.address, topic) as producer:
        producer.do("init")
        for offset, how in ((3, "commit"), (5, "abort"), (7, "commit")):
            producer.do("begin")
            producer.do("send", topic, 0, f"{offset}")
            producer.do("offset", topic, 0, offset, group)
            producer.do(how)
            assert committed(server.address, group, topic) == (7 if offset == 7 else 3)
    assert READERS["confluent-kafka"](server.address, topic, 2) == ["3", "7"]


def test_what_a_dead_producer_leaves_is_aborted(client: str, server: Server, topic: str) -> None:
    """The timeout aborts its transaction: consumers go on after it, and a successor does not wait."""
    with Producer(client, server.address, topic, 2_000) as producer:
        producer.do("init")
        producer.do("begin")
        producer.do("send", topic, 0, "lost")
    with Producer(client, server.address, f"{topic}.other") as other:
        other.do("init")
        other.do("begin")
        other.do("send", topic, 0, "kept")
        other.do("commit")
    assert READERS["confluent-kafka"](server.address, topic, 1) == ["kept"]


def test_kafkas_tool_shows_transactions(server: Server) -> None:
    if reason := missing("java"):
        pytest.skip(reason)
    tool = (java.TRANSACTIONS, "--bootstrap-server", server.address)
    admin = KafkaAdminClient(bootstrap_servers=server.address)
    admin.create_topics([NewTopic("shown", 1, 1)])
    admin.close()
    with Producer("confluent-kafka", server.address, "shown.id") as producer:
        producer.do("init")
        producer.do("begin")
        producer.do("send", "shown", 0, "1")
        listed = java.run(*tool, "list").stdout
        name, coordinator = next(line.split()[:2] for line in listed.splitlines() if "shown.id" in line)
        nodes = server.processes if isinstance(server, Barnabas) else 1
        assert (name, int(coordinator) in range(1, nodes + 1)) == ("shown.id", True)
        described = java.run(*tool, "describe", "--transactional-id", "shown.id").stdout
        assert "Ongoing" in described
        assert "shown-0" in described
        held = java.run(*tool, "describe-producers", "--topic", "shown", "--partition", "0").stdout.splitlines()[1]
        assert held.split()[-1] == "0", "the open transaction begins at offset 0"
        assert java.run(*tool, "abort", "--topic", "shown", "--partition", "0", "--start-offset", "0").returncode == 0
    assert "None" in java.run(*tool, "describe-producers", "--topic", "shown", "--partition", "0").stdout


def test_topics_describe_says_who_holds_readers_up(server: Server) -> None:
    if not isinstance(server, Barnabas):
        pytest.skip("our own command")
    admin = KafkaAdminClient(bootstrap_servers=server.address)
    admin.create_topics([NewTopic("held", 2, 1)])
    admin.close()
    describe = ("topics", "describe", "held", "-b", server.address)
    assert "wait" not in run(*describe)
    with Producer("confluent-kafka", server.address, "held.id") as producer:
        producer.do("init")
        producer.do("begin")
        producer.do("send", "held", 1, "1")
        (line,) = [line for line in run(*describe).splitlines() if "wait" in line]
        assert line.startswith("Partition 1: read_committed consumers wait at offset 0 for transactional id held.id (")
        assert "it ends by itself after 60 s" in line
        producer.do("commit")
        until(lambda: "wait" not in run(*describe), "the transaction is complete")
