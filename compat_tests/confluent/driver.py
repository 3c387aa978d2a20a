"""confluent-kafka: librdkafka under Python."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer
from confluent_kafka import Message as Received
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from compat_tests.driver import BEGINNING, HEARTBEAT_MS, SESSION_TIMEOUT_MS, At, Driver, Member, Record, Refused
from compat_tests.driver import ThreadMember as Base
from compat_tests.waiting import DEADLINE


def _record(message: Received) -> Record:
    return Record(
        message.value(),
        message.key(),
        tuple(message.headers() or ()),
        message.partition(),
        message.timestamp()[1],
        message.offset(),
    )


def _refused(error: Any) -> Refused:
    return Refused(error.name().lstrip("_"))


class GroupMember(Base):
    """Polls in a thread; rebalance callbacks run inside the poll."""

    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        super().__init__()
        self.settings, self.topic = settings, topic

    def open(self, stack: ExitStack) -> None:
        self.consumer = Consumer(self.settings)
        stack.callback(self.consumer.close)
        self.consumer.subscribe(
            [self.topic],
            on_assign=lambda _, places: self.on_assigned(p.partition for p in places),
            on_revoke=lambda _, places: self.on_revoked(p.partition for p in places),
        )

    def poll(self) -> None:
        messages = self.consumer.consume(500, timeout=0.05)
        for message in messages:
            if message.error() and not message.error().retriable():
                raise _refused(message.error())
        self.on_records(_record(message) for message in messages if not message.error())


class ConfluentDriver(Driver):
    name = "confluent-kafka"

    @staticmethod
    def version() -> str:
        return f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"

    def _settings(self, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.address,
            "topic.metadata.refresh.fast.interval.ms": 50,
            "topic.metadata.propagation.max.ms": 1000,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in more.items()},
        }

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False
    ) -> None:
        producer = Producer(
            self._settings(
                acks=acks,
                compression_codec=codec,
                enable_idempotence=idempotent,
                linger_ms=5,
                message_max_bytes=3_000_000,
                message_timeout_ms=20_000,
            )
        )
        errors: list[Any] = []

        def told(error: Any, _: Any) -> None:
            if error:
                errors.append(error)

        for record in records:
            more: dict[str, Any] = {}
            if record.partition is not None:
                more["partition"] = record.partition
            if record.timestamp is not None:
                more["timestamp"] = record.timestamp
            producer.produce(topic, record.value, record.key, headers=list(record.headers), on_delivery=told, **more)
        assert producer.flush(DEADLINE) == 0, "records are left in the queue"
        if errors:
            raise _refused(errors[0])

    def consume(self, topic: str, count: int, at: At = BEGINNING, partition: int | None = 0) -> list[Record]:
        consumer = Consumer(
            self._settings(
                group_id="unused",
                enable_auto_commit=False,
                auto_offset_reset="error",
                fetch_wait_max_ms=50,  # close() waits for the fetch in flight
            )
        )
        try:
            partitions = [partition]
            if partition is None:
                partitions = list(consumer.list_topics(topic, DEADLINE).topics[topic].partitions)
            if at.kind == "timestamp":
                places = consumer.offsets_for_times([Place(topic, p, at.number) for p in partitions], DEADLINE)
            else:
                offset = at.number if at.kind == "offset" else OFFSET_BEGINNING
                places = [Place(topic, p, offset) for p in partitions]
            consumer.assign(places)
            return _take(consumer, count)
        finally:
            consumer.close()

    def join(
        self, group: str, topic: str, *, latest: bool = False, instance: str | None = None, strategy: str = "range"
    ) -> Member:
        settings = self._group_settings(group, latest)
        settings["partition.assignment.strategy"] = {"cooperative": "cooperative-sticky"}.get(strategy, strategy)
        if instance:
            settings["group.instance.id"] = instance
        member = GroupMember(settings, topic)
        member.start()
        return member

    def _group_settings(self, group: str, latest: bool = False) -> dict[str, Any]:
        return self._settings(
            group_id=group,
            auto_offset_reset="latest" if latest else "earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )

    def consume_in_group(self, group: str, topic: str, count: int) -> list[Record]:
        consumer = Consumer({**self._group_settings(group), "enable.auto.commit": False})
        try:
            consumer.subscribe([topic])
            records = _take(consumer, count)
            ends = {record.partition: (record.offset or 0) + 1 for record in records}
            places = [Place(topic, p, end) for p, end in ends.items()]
            for place in consumer.commit(offsets=places, asynchronous=False):
                if place.error:
                    raise _refused(place.error)
            return records
        finally:
            consumer.close()

    # --- administration -----------------------------------------------------------------------------------------------

    @functools.cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(self._settings())  # the client must live as long as its futures

    def create_topic(self, topic: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        _result(self._admin.create_topics([NewTopic(topic, partitions, 1, config=configs or {})]))

    def delete_topic(self, topic: str) -> None:
        _result(self._admin.delete_topics([topic]))

    def topics(self) -> dict[str, int]:
        return {name: len(told.partitions) for name, told in self._admin.list_topics(timeout=DEADLINE).topics.items()}

    def topic_config(self, topic: str) -> dict[str, str]:
        told = _result(self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {name: entry.value for name, entry in told.items()}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        _result(self._admin.incremental_alter_configs([resource]))

    def groups(self) -> set[str]:
        return {listed.group_id for listed in self._admin.list_consumer_groups().result(DEADLINE).valid}

    def committed(self, group: str, topic: str) -> dict[int, int]:
        told = _result(self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return {p.partition: p.offset for p in told.topic_partitions if p.topic == topic}


def _take(consumer: Consumer, count: int) -> list[Record]:
    end = time.monotonic() + DEADLINE
    records: list[Record] = []
    while len(records) < count:
        left = end - time.monotonic()
        assert left > 0, f"{len(records)} of {count} records in {DEADLINE:g} s"
        message = consumer.poll(left)
        if message is None:
            continue
        if message.error():
            raise _refused(message.error())
        records.append(_record(message))
    return records


def _result(futures: dict[Any, Future[Any]]) -> Any:
    """The result of a request about one resource. Raises Refused."""
    (future,) = futures.values()
    try:
        return future.result(DEADLINE)
    except KafkaException as error:
        raise _refused(error.args[0]) from None
