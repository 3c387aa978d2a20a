"""Query topics, Spark and exports over topics with transactions, and over topics that are compacted while they read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer

from compat_tests.broker_process import Barnabas
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.query_topics.test_query_topics import ends, records, wait_for
from compat_tests.tools import missing
from compat_tests.waiting import until

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
from barnabas.streams.wal import LogDir, plan, read

if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)

SCHEMA = {"barnabas.value.format": "json", "barnabas.value.schema": "n INT"}


def value(number: int) -> bytes:
    return json.dumps({"n": number}).encode()


def written(broker: Barnabas, topic: str) -> Any:
    """Write committed and aborted transactions to two partitions; returns the producer, whose last one is open."""
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": f"writer-of-{topic}"})
    producer.init_transactions(30)
    for number in range(20):
        producer.begin_transaction()
        for record in range(6):
            producer.produce(topic, value(10 * number + record), key=b"k%d" % record, partition=record % 2)
        producer.flush(30)
        if number % 3 == 1:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    producer.begin_transaction()
    for record in range(6):
        producer.produce(topic, value(1000 + record), partition=record % 2)
    producer.flush(30)
    return producer


def committed() -> list[int]:
    return sorted(10 * number + record for number in range(20) if number % 3 != 1 for record in range(6))


def numbers_of(found: list[tuple[int, int | None, bytes | None]]) -> list[int]:
    return sorted(int(json.loads(each or b"")["n"]) for _, _, each in found)


def read_by_spark(broker: Barnabas, topic: str) -> list[int]:
    """The records that the `wal` source reads of a topic."""
    log_dir = LogDir(broker.data_dir)
    splits = plan(log_dir, log_dir.ranges(log_dir.partitions(topic)), split_bytes=2000)
    values = [each for split in splits for part in read(split, ["value"]) for each in part[0].to_pylist()]
    return sorted(int(json.loads(each)["n"]) for each in values)


def test_a_query_sees_what_is_committed_and_goes_on_when_a_transaction_ends(broker: Barnabas) -> None:
    client = ConfluentDriver(broker.address)
    client.create_topic("transacted", 2, SCHEMA)
    client.create_topic("seen", 2, {"barnabas.query": "SELECT n FROM transacted"})
    producer = written(broker, "transacted")
    wait_for(broker, "seen", "transacted")
    assert numbers_of(records(broker, "seen")) == committed()
    assert read_by_spark(broker, "transacted") == committed()
    producer.commit_transaction(30)  # its markers may come after the answer
    everything = [*committed(), *range(1000, 1006)]
    until(lambda: numbers_of(records(broker, "seen")) == everything, "the query has seen the transaction")
    assert read_by_spark(broker, "transacted") == everything


def test_a_query_over_a_topic_that_is_compacted_meanwhile(broker: Barnabas) -> None:
    """The query has read each record, or a later one with the same key."""
    client = ConfluentDriver(broker.address)
    client.create_topic("latest", 2, {**SCHEMA, "cleanup.policy": "compact", "segment.bytes": "3000"})
    client.create_topic("changes", 2, {"barnabas.query": "SELECT n FROM latest"})
    written(broker, "latest").abort_transaction(30)
    before = sum(ends(broker, "latest").values())
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    for number in range(2000, 2600):
        producer.produce("latest", value(number), key=b"k%d" % (number % 6), partition=number % 2)
        if number % 20 == 0:
            producer.flush(30)
    producer.flush(30)
    until(lambda: _left(broker) < 200, "the log is compacted")
    wait_for(broker, "changes", "latest")
    seen = set(numbers_of(records(broker, "changes")))
    assert not seen & {10 * number + record for number in range(1, 20, 3) for record in range(6)}, "aborted"
    assert set(range(2594, 2600)) <= seen
    assert seen <= {*committed(), *range(2000, 2600)}
    assert sum(ends(broker, "latest").values()) > before
    client.create_topic("later", 2, {"barnabas.query": "SELECT n FROM latest"})
    wait_for(broker, "later", "latest")
    found = numbers_of(records(broker, "later"))
    assert found == read_by_spark(broker, "latest")


def _left(broker: Barnabas) -> int:
    return len(read_by_spark(broker, "latest"))
