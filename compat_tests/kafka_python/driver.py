"""kafka-python."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from barnabas.wire.errors import ErrorCode
from compat_tests.driver import BEGINNING, HEARTBEAT_MS, SESSION_TIMEOUT_MS, At, Driver, Member, Record, Refused
from compat_tests.driver import ThreadMember as Base
from compat_tests.waiting import DEADLINE

ASSIGNORS = {"range": RangePartitionAssignor, "cooperative": CooperativeStickyAssignor}


def _record(got: Any) -> Record:
    return Record(got.value, got.key, tuple(got.headers), got.partition, got.timestamp, got.offset)


@contextmanager
def refusals() -> Iterator[None]:
    """kafka-python's errors by Kafka's names."""
    try:
        yield
    except KafkaError as error:
        code = getattr(error, "errno", None)
        raise Refused(ErrorCode(code).name if isinstance(code, int) else type(error).__name__) from error


class GroupMember(Base, ConsumerRebalanceListener):
    """Polls in a thread; rebalance callbacks run inside the poll."""

    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        super().__init__()
        self.settings, self.topic = settings, topic

    def open(self, stack: ExitStack) -> None:
        self.consumer = stack.enter_context(closing(KafkaConsumer(**self.settings)))
        self.consumer.subscribe([self.topic], listener=self)
        # kafka-python 3.0.12 joins again when it learns about the topic only after its first join, and can then hang
        # forever, with any broker. So the client learns about the topic before the first poll.
        self.consumer.partitions_for_topic(self.topic)

    def poll(self) -> None:
        for records in self.consumer.poll(timeout_ms=50).values():
            self.on_records(map(_record, records))

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.on_assigned(p.partition for p in assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.on_revoked(p.partition for p in revoked)


class KafkaPythonDriver(Driver):
    name = "kafka-python"

    @staticmethod
    def version() -> str:
        return str(kafka.__version__)

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.address,
            acks=int(acks) if acks != "all" else acks,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=3_000_000,
            max_block_ms=3_000,
        )
        with closing(producer), refusals():
            sent = [
                producer.send(topic, record.value, record.key, list(record.headers), record.partition, record.timestamp)
                for record in records
            ]
            producer.flush(DEADLINE)
            for future in sent:
                future.get(DEADLINE)

    def consume(self, topic: str, count: int, at: At = BEGINNING, partition: int | None = 0) -> list[Record]:
        with closing(KafkaConsumer(bootstrap_servers=self.address)) as consumer:
            partitions = consumer.partitions_for_topic(topic) if partition is None else {partition}
            places = [TopicPartition(topic, p) for p in partitions]
            consumer.assign(places)
            if at.kind == "beginning":
                consumer.seek_to_beginning(*places)
            elif at.kind == "offset":
                consumer.seek(places[0], at.number)
            else:
                for place, found in consumer.offsets_for_times(dict.fromkeys(places, at.number)).items():
                    consumer.seek(place, found.offset)
            return _take(consumer, count)

    def _group_settings(self, group: str, latest: bool = False) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.address,
            "group_id": group,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "auto_offset_reset": "latest" if latest else "earliest",
        }

    def join(
        self, group: str, topic: str, *, latest: bool = False, instance: str | None = None, strategy: str = "range"
    ) -> Member:
        settings = self._group_settings(group, latest)
        settings["partition_assignment_strategy"] = [ASSIGNORS[strategy]]
        settings["group_instance_id"] = instance
        member = GroupMember(settings, topic)
        member.start()
        return member

    def consume_in_group(self, group: str, topic: str, count: int) -> list[Record]:
        settings = {**self._group_settings(group), "enable_auto_commit": False, "max_poll_records": 1}
        with closing(KafkaConsumer(topic, **settings)) as consumer:
            records = _take(consumer, count)
            ends = {record.partition: (record.offset or 0) + 1 for record in records}
            consumer.commit({TopicPartition(topic, p): OffsetAndMetadata(end, "", -1) for p, end in ends.items()})
            return records

    # --- administration -----------------------------------------------------------------------------------------------

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        with closing(KafkaAdminClient(bootstrap_servers=self.address)) as admin, refusals():
            yield admin

    def create_topic(self, topic: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        with self._admin() as admin:
            admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs or {})])

    def delete_topic(self, topic: str) -> None:
        with self._admin() as admin:
            admin.delete_topics([topic])

    def topics(self) -> dict[str, int]:
        with self._admin() as admin:
            return {told["name"]: len(told["partitions"]) for told in admin.describe_topics()}

    def topic_config(self, topic: str) -> dict[str, str]:
        with self._admin() as admin:
            told = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
        return {name: entry["value"] for name, entry in told["topic"][topic].items()}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        with self._admin() as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})])

    def groups(self) -> set[str]:
        with self._admin() as admin:
            return {told["group_id"] for told in admin.list_groups()}

    def committed(self, group: str, topic: str) -> dict[int, int]:
        with self._admin() as admin:
            told = admin.list_group_offsets({group: None})
        return {place.partition: o.offset for place, o in told[group].items() if place.topic == topic}


def _take(consumer: Any, count: int) -> list[Record]:
    end = time.monotonic() + DEADLINE
    records: list[Record] = []
    while len(records) < count:
        assert time.monotonic() < end, f"{len(records)} of {count} records in {DEADLINE:g} s"
        for got in consumer.poll(timeout_ms=500, max_records=count - len(records)).values():
            records += map(_record, got)
    return records
