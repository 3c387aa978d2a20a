"""The clients of a history: transactional and plain producers, readers, and a transformation; each a thread.

A client notes in its `ops` what was acknowledged. It retries errors that pass; after any other error it starts again
with a new client of the same name, as an application would.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import subprocess
import threading
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError
from kafka.structs import OffsetAndMetadata

from compat_tests.crash.workload import Work
from compat_tests.history.checker import Op, Outcome, Poll, Send
from compat_tests.java import tools
from compat_tests.waiting import changed

PRODUCER = {
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 2_000,
    "log_level": 0,
}
CONSUMER = {
    **{key: value for key, value in PRODUCER.items() if not key.startswith("retry")},
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": False,
    "fetch.wait.max.ms": 100,
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,
}
TRANSACTION_SECONDS = 60
_NEAR = 5_000


def key_of(message: Message) -> str:
    return f"{message.topic()}-{message.partition()}"


class Values:
    """Numbers, each of which is given out once."""

    def __init__(self) -> None:
        self._count = itertools.count(1)
        self._lock = threading.Lock()

    def next(self) -> int:
        with self._lock:
            return next(self._count)


class Client(Work):
    """A thread with a part in the history."""

    def __init__(self, name: str, address: str, topic: str, partitions: int, seed: int) -> None:
        self.address, self.topic, self.partitions = address, topic, partitions
        self.random = random.Random(f"{seed} {name}")
        self.ops: list[Op] = []
        super().__init__(name)

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def note(self, op: Op) -> None:
        self.ops.append(op)
        changed()


class PlainProducer(Client):
    """Idempotent, without transactions: each record is an operation."""

    def __init__(self, name: str, address: str, topic: str, partitions: int, seed: int, values: Values) -> None:
        self.values = values
        super().__init__(name, address, topic, partitions, seed)

    def run(self) -> None:
        while not self.stopping:
            producer = Producer({**PRODUCER, "bootstrap.servers": self.address, "enable.idempotence": True})
            failed = threading.Event()
            while not self.stopping and not failed.is_set():
                value, partition = self.values.next(), self.random.randrange(self.partitions)
                producer.produce(
                    self.topic, b"%d" % value, partition=partition, on_delivery=self._delivered(value, failed)
                )
                while len(producer) > 50:
                    producer.poll(0.05)
                producer.poll(self.random.choice([0, 0.001, 0.02]))
            producer.flush(120)

    def _delivered(self, value: int, failed: threading.Event) -> Callable[[KafkaError | None, Message], None]:
        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.set()
            place = message.offset() if error is None else None
            self.note(Op(self.name, "ok" if error is None else "unknown", [Send(key_of(message), value, place)]))

        return told


class TransactionalProducer(Client):
    """Sends a few records to some partitions, then commits, or sometimes aborts."""

    def __init__(self, name: str, address: str, topic: str, partitions: int, seed: int, values: Values) -> None:
        self.values = values
        super().__init__(name, address, topic, partitions, seed)

    def run(self) -> None:
        while not self.stopping:
            producer = transactional(self.name, self.address)
            if producer is None:
                continue
            while not self.stopping and self._transaction(producer):
                pass

    def _transaction(self, producer: Any) -> bool:
        """Run one transaction; returns whether the producer can go on."""
        sent: dict[tuple[str, int], int | None] = {}

        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                value = message.value()
                assert value is not None
                sent[key_of(message), int(value)] = message.offset()

        def ended(outcome: Outcome) -> None:
            self.note(Op(self.name, outcome, [Send(key, value, at) for (key, value), at in sent.items()]))

        wants_abort = self.random.random() < 0.25
        try:
            producer.begin_transaction()
            for _ in range(self.random.randint(1, 6)):
                value, partition = self.values.next(), self.random.randrange(self.partitions)
                sent[f"{self.topic}-{partition}", value] = None
                producer.produce(self.topic, b"%d" % value, partition=partition, on_delivery=told)
            producer.poll(self.random.choice([0, 0.005, 0.05]))
            if wants_abort:
                producer.flush(
                    TRANSACTION_SECONDS
                )  # librdkafka may end a transaction that has not begun, which is fatal
        except (KafkaException, BufferError) as error:
            return _aborted(producer, error, ended)
        return _aborted(producer, None, ended) if wants_abort else _committed(producer, ended)


def transactional(name: str, address: str) -> Any:
    """A producer with that transactional id, None if it could not be initialized."""
    producer = Producer(
        {**PRODUCER, "bootstrap.servers": address, "transactional.id": name, "transaction.timeout.ms": 20_000}
    )
    try:
        _retried(lambda: producer.init_transactions(TRANSACTION_SECONDS))
    except KafkaException:
        return None
    return producer


def _retried(call: Callable[[], None]) -> None:
    """Repeat a call until it succeeds, or fails with an error that the library does not call retriable."""
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def _committed(producer: Any, ended: Callable[[Outcome], None]) -> bool:
    try:
        _retried(lambda: producer.commit_transaction(TRANSACTION_SECONDS))
    except KafkaException as error:
        return _aborted(producer, error, ended)
    ended("ok")
    return True


def _aborted(producer: Any, error: Exception | None, ended: Callable[[Outcome], None]) -> bool:
    """Abort if the caller or the error asks for it; returns whether the producer can go on."""
    told = error.args[0] if isinstance(error, KafkaException) else None
    if told is not None and not told.txn_requires_abort():  # fatal, or the outcome is unknown
        ended("unknown")
        return False
    try:
        _retried(lambda: producer.abort_transaction(TRANSACTION_SECONDS))
    except KafkaException:
        ended("unknown")
        return False
    ended("aborted")
    return True


class Reader(Client):
    """Reads all partitions, and sometimes starts again, at the beginning or (for long logs) near the end."""

    def __init__(
        self, name: str, address: str, topic: str, partitions: int, seed: int, *, committed_only: bool = True
    ) -> None:
        self.committed_only = committed_only
        super().__init__(name, address, topic, partitions, seed)

    def run(self) -> None:
        while not self.stopping:
            consumer = Consumer(
                {
                    **CONSUMER,
                    "bootstrap.servers": self.address,
                    "group.id": self.name,
                    "isolation.level": "read_committed" if self.committed_only else "read_uncommitted",
                }
            )
            consumer.assign([TopicPartition(self.topic, n, self._start(consumer, n)) for n in range(self.partitions)])
            restarted = True
            for _ in range(self.random.randint(50, 300)):
                if self.stopping:
                    break
                polls = polled(consumer.consume(self.random.randint(1, 200), 0.1))
                if polls:
                    self.note(Op(self.name, "ok", [], polls, committed_only=self.committed_only, restarted=restarted))
                    restarted = False
            consumer.close()

    def _start(self, consumer: Consumer, partition: int) -> int:
        if self.random.random() < 0.2:
            return int(OFFSET_BEGINNING)
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(self.topic, partition), 10)
        except KafkaException:
            return int(OFFSET_BEGINNING)
        return max(0, int(end) - self.random.randrange(_NEAR))


def polled(messages: list[Message]) -> list[Poll]:
    """The records of a call, by key."""
    found: dict[str, list[tuple[int, int]]] = {}
    for message in messages:
        if message.error() is None:
            offset, value = message.offset(), message.value()
            assert offset is not None
            assert value is not None
            found.setdefault(key_of(message), []).append((offset, int(value)))
    return [Poll(key, records) for key, records in found.items()]


class Transformer(Client):
    """Consumes a topic and writes each value to the same partition of another topic; transactions include the offsets.

    It uses kafka-python: after a restart of the broker, librdkafka 2.16 may wait forever in
    send_offsets_to_transaction, also with Apache Kafka. kafka-python 3.0.12 may do so too, once in some hundred
    thousand transactions; it then has no request in flight and none queued. Such a member leaves the group when it has
    not polled for a while, and the other transformer goes on with its records.
    """

    is_stuck = False

    def __init__(self, name: str, address: str, topic: str, target: str, partitions: int, seed: int) -> None:
        self.target = target
        self.written = 0
        super().__init__(name, address, topic, partitions, seed)

    def run(self) -> None:
        while not self.stopping:
            try:
                with contextlib.closing(self._consumer()) as consumer, contextlib.closing(self._producer()) as producer:
                    producer.init_transactions()
                    while not self.stopping:
                        self._round(producer, consumer)
            except KafkaPythonError:
                self._stop.wait(0.1)  # any error: a new producer fences the old one, and a new consumer starts again

    def _producer(self) -> Any:
        producer = KafkaProducer(
            bootstrap_servers=self.address,
            transactional_id=self.name,
            transaction_timeout_ms=20_000,
            max_block_ms=20_000,
            reconnect_backoff_max_ms=200,
        )
        _retries_lost_coordinators(producer)
        return producer

    def _consumer(self) -> Any:
        return KafkaConsumer(
            self.topic,
            bootstrap_servers=self.address,
            group_id="transformers",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
            max_poll_interval_ms=20_000,
            reconnect_backoff_max_ms=200,
        )

    def finish(self, deadline: float = 120) -> None:
        """Stop. A thread that waits forever in its library is left behind."""
        self._stop.set()
        self._thread.join(120)
        self.is_stuck = "in send_offsets_to_transaction" in self.where()
        if not self.is_stuck:
            super().finish(deadline)

    def _round(self, producer: Any, consumer: Any) -> None:
        """Write the records of one poll in one transaction. Raises KafkaPythonError."""
        found = consumer.poll(timeout_ms=100, max_records=200)
        if not found:
            return
        producer.begin_transaction()
        for place, records in found.items():
            for record in records:
                producer.send(self.target, record.value, partition=place.partition)
        offsets = {place: OffsetAndMetadata(consumer.position(place), "", -1) for place in found}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()
        self.written += sum(map(len, found.values()))
        changed()


class JavaClient(Client):
    """A client with Kafka's Java library, in a JVM of its own (`Clients.java`), which ends with its standard input."""

    def __init__(self, name: str, address: str, topic: str, partitions: int, seed: int, *words: str) -> None:
        program = tools.program(Path(__file__).parent / "Clients.java", words[0], name, address, topic, *words[1:])
        self._process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        super().__init__(name, address, topic, partitions, seed)

    def run(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                self.take(line)
        if self._process.wait():
            self.failures.append(f"{self.name}: its JVM ended with {self._process.returncode}")

    @abstractmethod
    def take(self, line: str) -> None:
        """Take a line of the program's output."""

    def finish(self, deadline: float = 120) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        super().finish(deadline)
        self._process.kill()


class JavaProducer(JavaClient):
    """Like `TransactionalProducer`, with values that no other client has."""

    def __init__(self, name: str, address: str, topic: str, partitions: int, seed: int) -> None:
        super().__init__(name, address, topic, partitions, seed, "producer", str(partitions), str(seed))

    def take(self, line: str) -> None:
        self.note(msgspec.json.decode(line, type=Op))


class JavaTransformer(JavaClient):
    """Like `Transformer`, and in the same group."""

    is_stuck = False

    def __init__(self, name: str, address: str, topic: str, target: str, partitions: int, seed: int) -> None:
        self.written = 0
        super().__init__(name, address, topic, partitions, seed, "transformer", target)

    def take(self, line: str) -> None:
        self.written += int(line)
        changed()


def _retries_lost_coordinators(producer: Any) -> None:
    """Make kafka-python 3.0.12 retry a request whose coordinator refuses the connection; it would wait for it forever.

    By itself it retries only if that node is not ready.
    """
    client = producer._sender._client
    await_ready = client.await_ready

    def is_ready(*arguments: Any, **options: Any) -> bool:
        try:
            return bool(await_ready(*arguments, **options))
        except KafkaPythonError:
            return False

    client.await_ready = is_ready


def read_to_end(address: str, topic: str, partitions: int, *, committed_only: bool = True) -> dict[str, Any]:
    """All that a new consumer sees of a topic, by key."""
    consumer = Consumer(
        {
            **CONSUMER,
            "bootstrap.servers": address,
            "group.id": "last",
            "isolation.level": "read_committed" if committed_only else "read_uncommitted",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    found: dict[str, list[tuple[int, int]]] = {f"{topic}-{number}": [] for number in range(partitions)}
    ended: set[int] = set()
    while len(ended) < partitions:
        for message in consumer.consume(500, 0.5):
            error = message.error()
            if error is None:
                (poll,) = polled([message])
                found[poll.key] += poll.records
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition() or 0)
    consumer.close()
    return found
