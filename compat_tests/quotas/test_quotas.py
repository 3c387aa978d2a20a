"""Client quotas with real clients: Kafka's tool sets them, throttle times show them. `--peer` tests Apache Kafka."""

from __future__ import annotations

import re
import threading

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.broker.tests.client import Closed, batch_of, fetch_request, produce_request
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from compat_tests.broker_process import Barnabas, Server
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.conftest import NewServer
from compat_tests.java import tools
from compat_tests.java.driver import JavaDriver
from compat_tests.java.test_tools import run
from compat_tests.pipe import CLIENT_ID, Pipe
from compat_tests.waiting import DEADLINE, until

DRIVER = JavaDriver
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
HASTY = "127.0.0.2"

pytestmark = pytest.mark.usefixtures("client")


@pytest.fixture(scope="module")
def server(new_server: NewServer) -> Server:
    return new_server({"auto.create.topics.enable": "false"})


def limit(server: Server, entity: dict[str, str], **values: float) -> None:
    """Set quotas with Kafka's tool, and return when they are in force."""
    names = [word for kind, name in entity.items() for word in ("--entity-type", kind, "--entity-name", name)]
    given = ",".join(f"{key}={value}" for key, value in values.items())
    run(server, tools.CONFIGS, "--alter", *names, "--add-config", given)
    kinds = {"users": "user", "clients": "client-id", "ips": "ip"}
    wanted = [ComponentData(kinds[kind], 0, name) for kind, name in entity.items()]
    with Pipe(server.port) as pipe:
        until(lambda: bool(pipe.ask(DescribeClientQuotasRequest(wanted, True)).entries), "the quota is there")


def throttle_ms(pipe: Pipe, topic: str, size: int) -> int:
    answer = pipe.ask(produce_request(topic, batch_of(bytes(size))), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    ms: int = answer.throttle_time_ms
    return ms


@pytest.mark.long
def test_a_java_producer_is_throttled_by_its_client_id(other: ConfluentDriver, server: Server) -> None:
    other.create_topic("java")
    limit(server, {"clients": "slow"}, producer_byte_rate=20_000)
    assert longest_throttle(server, "slow") > 100
    assert longest_throttle(server, "quick") == 0


def longest_throttle(server: Server, client_id: str) -> float:
    """The longest throttle time of a producer that sends 250 KB, in ms, from its own metrics."""
    properties = ["--producer-props", f"bootstrap.servers={server.address}", f"client.id={client_id}"]
    sent = ["--topic", "java", "--num-records", "250", "--record-size", "1000", "--throughput", "-1"]
    done = tools.run(PERFORMANCE, *sent, *properties, "batch.size=20000", "--print-metrics")
    assert done.returncode == 0, done.stderr + done.stdout
    found = re.search(rf"produce-throttle-time-max:\{{client-id={client_id}\}}\s*: (\S+)", done.stdout)
    assert found, done.stdout
    return float(found[1])


def test_librdkafka_hears_of_throttle_times(other: ConfluentDriver, server: Server) -> None:
    other.create_topic("librdkafka")
    limit(server, {"users": "ANONYMOUS", "clients": "rd"}, producer_byte_rate=20_000, consumer_byte_rate=20_000)
    heard = threading.Event()
    base = {"bootstrap.servers": server.address, "client.id": "rd", "throttle_cb": lambda _: heard.set()}
    producer = Producer({**base, "batch.size": 50_000, "linger.ms": 100})
    for number in range(250):
        producer.produce("librdkafka", number.to_bytes(4, "big") + bytes(1000))
    assert producer.flush(DEADLINE) == 0
    producer.poll(0)
    assert heard.is_set()
    heard.clear()
    consumer = Consumer({**base, "group.id": "g", "max.partition.fetch.bytes": 100_000})
    consumer.assign([TopicPartition("librdkafka", 0, 0)])
    got = [message.value() for message in consumer.consume(250, DEADLINE)]
    consumer.close()
    assert [value and int.from_bytes(value[:4], "big") for value in got] == list(range(250))
    assert heard.is_set()


@pytest.mark.one_node("it asks one node by one connection, which need not lead what it asks for")
def test_throttle_times_are_those_of_kafka(other: ConfluentDriver, server: Server) -> None:
    """A rate covers ten full windows and the current one; the delay is as long as the quota needs for the excess."""
    other.create_topic("exact")
    limit(server, {"clients": CLIENT_ID}, producer_byte_rate=1000)
    with Pipe(server.port) as pipe, Pipe(server.port) as second:
        assert 4_000 <= throttle_ms(pipe, "exact", 15_000) <= 5_200
        assert throttle_ms(second, "exact", 5_000) >= 8_000  # the same client id
    limit(server, {"clients": CLIENT_ID}, producer_byte_rate=1_000_000_000)
    with Pipe(server.port) as pipe:
        assert throttle_ms(pipe, "exact", 15_000) == 0


@pytest.mark.one_node("it asks one node by one connection, which need not lead what it asks for")
def test_a_throttled_fetch_is_empty(other: ConfluentDriver, server: Server) -> None:
    other.create_topic("fetched")
    with Pipe(server.port) as pipe:
        for _ in range(4):
            throttle_ms(pipe, "fetched", 5_000)
    limit(server, {"clients": CLIENT_ID}, consumer_byte_rate=1000)
    with Pipe(server.port) as pipe:
        full = pipe.ask(fetch_request("fetched", max_bytes=9_500), 12)
        assert full.throttle_time_ms == 0
        assert full.responses[0].partitions[0].records
        empty = pipe.ask(fetch_request("fetched", max_bytes=9_500), 12)
        assert empty.responses == []
        assert empty.throttle_time_ms > 0
    limit(server, {"clients": CLIENT_ID}, consumer_byte_rate=1_000_000_000)


def test_too_many_changes_of_topics_are_refused(server: Server) -> None:
    with Pipe(server.port) as pipe:
        limit(server, {"clients": CLIENT_ID}, controller_mutation_rate=1)
        first = pipe.ask(CreateTopicsRequest([CreatableTopic("many", 30, 1)]))
        assert (first.topics[0].error_code, first.throttle_time_ms) == (0, 0)
        refused = pipe.ask(CreateTopicsRequest([CreatableTopic("one-more", 1, 1)]))
        assert refused.topics[0].error_code == 89
        assert 15_000 <= refused.throttle_time_ms <= 19_000
    limit(server, {"clients": CLIENT_ID}, controller_mutation_rate=1_000_000)


def test_an_address_that_comes_too_fast_is_turned_away(server: Server) -> None:
    limit(server, {"ips": HASTY}, connection_creation_rate=1)
    refused, pipes = 0, []
    for _ in range(15):
        try:
            pipes.append(Pipe(server.port, source=HASTY))
        except (Closed, OSError):
            refused += 1
            break
    assert refused
    assert len(pipes) >= 10
    with Pipe(server.port) as honest:
        assert honest.versions
    for pipe in pipes:
        pipe.close()
    if isinstance(server, Barnabas):
        assert "connection.too_fast" in server.log_file.read_text()
