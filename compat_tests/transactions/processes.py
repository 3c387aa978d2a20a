"""Transactional producers as processes that read commands, one a line, and read_committed consumers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kafka import KafkaConsumer, TopicPartition

from compat_tests.java import tools as java
from compat_tests.tools import KAFKAJS, ROOT, missing

HERE = Path(__file__).parent
PYTHON = ("kafka-python", "confluent-kafka", "aiokafka")
CLIENTS = (*PYTHON, "kafkajs", "java")
#: The errors with which each client reports that a later producer has fenced it.
FENCED = {
    "kafka-python": {"ProducerFencedError", "InvalidProducerEpochError", "KafkaError"},
    "confluent-kafka": {"_FENCED", "_PURGE_QUEUE", "INVALID_PRODUCER_EPOCH"},
    "aiokafka": {"ProducerFenced"},
    "kafkajs": {"INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"},
    "java": {"ProducerFencedException", "InvalidProducerEpochException"},
}


class Producer:
    """One process. The end of the block kills it, as a crash would."""

    def __init__(self, client: str, address: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        more = (address, transactional_id, str(timeout_ms))
        environment = dict(os.environ)
        if client == "java":
            command = java.program(HERE / "Producer.java", *more)
        elif client == "kafkajs":
            command = ["node", str(HERE / "producer.js"), *more]
            environment |= {"NODE_PATH": str(KAFKAJS / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
        else:
            command = [sys.executable, "-m", "compat_tests.transactions.producer", client, *more]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env=environment,
        )

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, *words: object) -> str:
        """The producer's answer to a command: ok, or the error's name."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def die_at(self, *words: object) -> None:
        """Send a command, and kill the process before it answers."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        self._process.kill()

    def do(self, *words: object) -> None:
        """Run a command that must succeed."""
        assert self.ask(*words) == "ok", words


def _kafka_python(address: str, topic: str, count: int) -> list[str]:
    consumer = KafkaConsumer(
        bootstrap_servers=address,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    consumer.assign([TopicPartition(topic, 0)])
    found = [next(consumer).value.decode() for _ in range(count)]
    consumer.close()
    return found


def _confluent(address: str, topic: str, count: int) -> list[str]:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Place

    consumer = Consumer({"bootstrap.servers": address, "group.id": "c", "isolation.level": "read_committed"})
    consumer.assign([Place(topic, 0, 0)])
    found = [message.value().decode() for message in consumer.consume(count, 20)]
    consumer.close()
    return found


def _kafkajs(address: str, topic: str, count: int) -> list[str]:
    return _lines(["node", str(HERE / "consumer.js"), address, topic, str(count)])


def _java(address: str, topic: str, count: int) -> list[str]:
    place = ("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", str(count))
    committed = ("--isolation-level", "read_committed", "--timeout-ms", "20000")
    done = java.run(java.CONSOLE_CONSUMER, "--bootstrap-server", address, *place, *committed)
    return done.stdout.split()


def _aiokafka(address: str, topic: str, count: int) -> list[str]:
    return _lines([sys.executable, str(HERE / "consumer.py"), address, topic, str(count)])


def java_lines(source: str, *arguments: str) -> list[str]:
    """The output of a Java program of this folder."""
    return _lines(java.program(HERE / source, *arguments))


def _lines(command: list[str]) -> list[str]:
    environment = {**os.environ, "NODE_PATH": str(KAFKAJS / "node_modules")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=True)
    return done.stdout.split()


READERS = {
    "kafka-python": _kafka_python,
    "confluent-kafka": _confluent,
    "aiokafka": _aiokafka,
    "kafkajs": _kafkajs,
    "java": _java,
}


def everyone_reads(address: str, topic: str, first: list[str], second: list[str]) -> None:
    """Check that each client's read_committed consumer reads these values of partitions 0 and 1, in order."""
    for reader, read in READERS.items():
        if missing(reader):
            continue
        if reader == "kafkajs":  # it reads both partitions
            assert sorted(read(address, topic, len(first + second))) == sorted(first + second)
        else:
            assert read(address, topic, len(first)) == first, reader


def committed(address: str, group: str, topic: str) -> int | None:
    """The committed offset of a group in partition 0, when no open transaction has one for it."""
    consumer = KafkaConsumer(bootstrap_servers=address, group_id=group, isolation_level="read_committed")
    offset: int | None = consumer.committed(TopicPartition(topic, 0))
    consumer.close()
    return offset
