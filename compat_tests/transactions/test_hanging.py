"""A transaction that no coordinator knows, found and ended with Kafka's tool, as an operator would."""

from __future__ import annotations

import time

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from barnabas.wire.batch import Record, build_batch
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from compat_tests.broker_process import Server
from compat_tests.conftest import NewServer
from compat_tests.java import tools as java
from compat_tests.pipe import Pipe
from compat_tests.tools import missing
from compat_tests.transactions.processes import FENCED, READERS, Producer

TOOL = java.TRANSACTIONS
PRODUCER_ID = 4_000
#: The tool lists transactions without a write for that many minutes; its default is 15.
FIND = ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")


@pytest.fixture
def server(new_server: NewServer) -> Server:
    """The leader does not verify transactions with their coordinator, so a client can leave a hanging one behind."""
    return new_server({"transaction.partition.verification.enable": "false"})


def produce_of_nobody(server: Server, topic: str) -> None:
    """Write a transactional record that no coordinator knows of."""
    data = build_batch(
        [Record(None, b"of nobody", int(time.time() * 1000))],
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    place = TopicProduceData(topic, partition_data=[PartitionProduceData(index=0, records=data)])
    with Pipe(server.port) as pipe:
        answer = pipe.ask(ProduceRequest("of-nobody", acks=-1, timeout_ms=10_000, topic_data=[place]), 11)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


def tool(server: Server, *arguments: str) -> str:
    done = java.run(TOOL, "--bootstrap-server", server.address, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_operator_finds_it_and_ends_it(server: Server) -> None:
    if reason := missing("java"):
        pytest.skip(reason)
    admin = KafkaAdminClient(bootstrap_servers=server.address)
    admin.create_topics([NewTopic("hung", 1, 1)])
    admin.close()
    with Producer("confluent-kafka", server.address, "known") as producer:
        for command in (("init",), ("begin",), ("send", "hung", 0, "before"), ("commit",)):
            producer.do(*command)
        assert READERS["confluent-kafka"](server.address, "hung", 1) == ["before"]  # so its marker is at offset 1
        produce_of_nobody(server, "hung")
        for command in (("begin",), ("send", "hung", 0, "behind"), ("commit",)):
            producer.do(*command)
    assert "of-nobody" not in tool(server, "list")
    (found,) = tool(server, *FIND).splitlines()[1:]
    topic, partition, producer_id, epoch, _, start, *_ = found.split()
    assert (topic, partition, producer_id, epoch, start) == ("hung", "0", str(PRODUCER_ID), "0", "2")
    place = ("--topic", topic, "--partition", partition)
    shown = [line.split() for line in tool(server, "describe-producers", *place).splitlines()[1:]]
    assert {line[0]: line[-1] for line in shown}[producer_id] == start
    tool(server, "abort", *place, "--start-offset", start)
    assert tool(server, *FIND).splitlines()[1:] == []
    assert READERS["confluent-kafka"](server.address, "hung", 2) == ["before", "behind"]


def test_an_operator_ends_one_that_its_coordinator_knows(server: Server) -> None:
    if reason := missing("java"):
        pytest.skip(reason)
    admin = KafkaAdminClient(bootstrap_servers=server.address)
    admin.create_topics([NewTopic("forgotten", 1, 1)])
    admin.close()
    with Producer("confluent-kafka", server.address, "forgetful") as producer:
        for command in (("init",), ("begin",), ("send", "forgotten", 0, "open")):
            producer.do(*command)
        assert tool(server, *FIND).splitlines()[1:] == [], "its coordinator knows it"
        tool(server, "forceTerminateTransaction", "--transactionalId", "forgetful")
        assert "Ongoing" not in tool(server, "describe", "--transactional-id", "forgetful")
        assert FENCED["confluent-kafka"] & {producer.ask("send", "forgotten", 0, "zombie"), producer.ask("commit")}
    with Producer("confluent-kafka", server.address, "other") as producer:
        for command in (("init",), ("begin",), ("send", "forgotten", 0, "next"), ("commit",)):
            producer.do(*command)
    assert READERS["confluent-kafka"](server.address, "forgotten", 1) == ["next"]
