"""Producers and consumers that go on while the broker dies and comes back, and note what was acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from compat_tests.waiting import changed

Place = tuple[int, int]  # partition, number of the record in it
# Smaller than the tests' segments, so that a segment rolls every few batches.
BATCH_BYTES = 3000


class Work(ABC):
    """A thread that works until it is told to stop. The test checks its failures."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self.run()
        except Exception as error:
            self.failures.append(f"{self.name}: {error!r}")
            changed()

    @abstractmethod
    def run(self) -> None:
        """Work until `_stop` is set."""

    def where(self) -> str:
        """The error that it failed with, or its current place in the code."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "\n".join([*self.failures, *(traceback.format_stack(frame) if frame is not None else ())])

    def finish(self, deadline: float = 120) -> None:
        """Stop, and wait for the work in flight."""
        self._stop.set()
        self._thread.join(deadline)
        if self._thread.is_alive():
            self.failures.append(f"{self.name} does not end")


class Writer(Work):
    """A producer with acks=all and idempotence. `acked` has the offset of every acknowledged record."""

    IN_FLIGHT = 200

    def __init__(self, name: str, address: str, topic: str, partitions: int) -> None:
        self.address, self.topic, self.partitions = address, topic, partitions
        self.acked: dict[Place, int] = {}
        self.refused: dict[Place, str] = {}
        self.sent = [0] * partitions
        super().__init__(name)

    def value(self, place: Place) -> bytes:
        return f"{self.name}:{place[0]}:{place[1]}:".encode() + b"." * (place[1] % 97)

    def next_place(self) -> Place:
        partition = sum(self.sent) % self.partitions
        self.sent[partition] += 1
        return partition, self.sent[partition] - 1

    @property
    def outstanding(self) -> int:
        return sum(self.sent) - len(self.acked) - len(self.refused)


class ConfluentWriter(Writer):
    """librdkafka."""

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.size": BATCH_BYTES,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "socket.timeout.ms": 10_000,
                "error_cb": self._on_error,
                "log_level": 0,
            }
        )
        while not self._stop.is_set():
            while self.outstanding < self.IN_FLIGHT:
                place = self.next_place()
                producer.produce(
                    self.topic,
                    value=self.value(place),
                    partition=place[0],
                    on_delivery=lambda error, message, place=place: self._delivered(place, error, message),
                )
            producer.poll(0.05)
        if producer.flush(100):
            self.failures.append(f"{self.name}: {len(producer)} records never answered")

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(f"{self.name}: fatal {error}")

    def _delivered(self, place: Place, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acked[place] = message.offset()
        else:
            self.refused[place] = str(error)
        changed()


class AiokafkaWriter(Writer):
    """aiokafka."""

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=self.address,
            enable_idempotence=True,
            acks="all",
            linger_ms=2,
            max_batch_size=BATCH_BYTES,
            request_timeout_ms=120_000,
            retry_backoff_ms=20,
        )
        await producer.start()
        waiting: set[asyncio.Future[Any]] = set()
        try:
            while not self._stop.is_set():
                for _ in range(self.IN_FLIGHT - self.outstanding):
                    place = self.next_place()
                    future = await producer.send(self.topic, self.value(place), partition=place[0])
                    waiting.add(future)
                    future.add_done_callback(lambda done, place=place: self._delivered(place, done))
                _, waiting = await asyncio.wait(waiting, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
            if waiting:
                await asyncio.wait(waiting, timeout=100)
        finally:
            await producer.stop()

    def _delivered(self, place: Place, done: asyncio.Future[Any]) -> None:
        error = done.exception()
        if error is None:
            self.acked[place] = done.result().offset
        else:
            self.refused[place] = repr(error)
        changed()


class Reader(Work):
    """A consumer of a group that commits what it has read, and sometimes leaves and comes back.

    When it comes back, its first record must be at its last commit: the last acknowledged one, or a later one whose
    answer was lost.
    """

    def __init__(self, address: str, topic: str, group: str) -> None:
        self.address, self.topic, self.group = address, topic, group
        self.records = 0
        self.commits = 0
        self.resumed = 0
        self._may_resume: dict[int, set[int]] = {}
        super().__init__(f"reader of {group}")

    def run(self) -> None:
        while not self._stop.is_set():
            self._one_life()

    def _one_life(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "check.crcs": True,
                "topic.metadata.refresh.interval.ms": 1000,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 20,
            }
        )
        following: dict[int, int] = {}
        consumer.subscribe([self.topic], on_assign=lambda *_: following.clear(), on_revoke=lambda *_: following.clear())
        ends = time.monotonic() + 4
        try:
            while not self._stop.is_set() and time.monotonic() < ends:
                for message in consumer.consume(200, timeout=0.2):
                    if message.error():
                        continue
                    partition, offset = message.partition(), message.offset()
                    due = following.get(partition)
                    if due is None:
                        self._check_resumed(partition, offset)
                    elif offset != due:
                        self.failures.append(f"{self.name}: partition {partition} gave {offset} where {due} was due")
                    following[partition] = offset + 1
                    self.records += 1
                if following:
                    self._commit(consumer, dict(following))
        finally:
            consumer.close()

    def _check_resumed(self, partition: int, offset: int) -> None:
        allowed = self._may_resume.setdefault(partition, {0})
        if offset not in allowed:
            self.failures.append(f"{self.name}: partition {partition} resumed at {offset}, not at {sorted(allowed)}")
        self.resumed += 1
        changed()

    def _commit(self, consumer: Consumer, following: dict[int, int]) -> None:
        for partition, offset in following.items():
            self._may_resume.setdefault(partition, {0}).add(offset)
        asked = [TopicPartition(self.topic, partition, offset) for partition, offset in following.items()]
        with contextlib.suppress(KafkaException):
            for done in consumer.commit(offsets=asked, asynchronous=False) or ():
                if done.error is None:
                    self._may_resume[done.partition] = {done.offset}
            self.commits += 1
