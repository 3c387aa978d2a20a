"""aiokafka: its event loop runs in a thread, and the scenarios call into it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

from barnabas.wire.errors import ErrorCode
from compat_tests.driver import (
    BEGINNING,
    HEARTBEAT_MS,
    SESSION_TIMEOUT_MS,
    At,
    Driver,
    Member,
    NotApplicable,
    Record,
    Refused,
)
from compat_tests.waiting import DEADLINE


def _record(got: Any) -> Record:
    return Record(got.value, got.key, tuple(got.headers), got.partition, got.timestamp, got.offset)


def _refused(code: int, error: BaseException | None = None) -> Refused:
    return Refused(ErrorCode(code).name if code > 0 else type(error).__name__)


class GroupMember(Member, ConsumerRebalanceListener):
    """A task that polls."""

    def __init__(self, driver: AiokafkaDriver, settings: dict[str, Any], topic: str) -> None:
        super().__init__()
        self.driver, self.settings, self.topic = driver, settings, topic
        self.task = driver.start(self._run())

    async def _run(self) -> None:
        consumer = AIOKafkaConsumer(**self.settings)
        consumer.subscribe([self.topic], listener=self)
        try:
            await consumer.start()
            while True:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    self.on_records(map(_record, records))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.on_failure(error)
        finally:
            await consumer.stop()

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self.on_assigned(p.partition for p in assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self.on_revoked(p.partition for p in revoked)

    def close(self) -> None:
        self.driver.stop(self.task)


class AiokafkaDriver(Driver):
    name = "aiokafka"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the loop and wait for its result."""
        try:
            return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, DEADLINE), self.loop).result()
        except KafkaError as error:
            raise _refused(getattr(error, "errno", -1), error) from error

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task in the loop."""

        async def begin() -> asyncio.Task[None]:
            return asyncio.create_task(work)

        task: asyncio.Task[None] = self.run(begin())
        return task

    def stop(self, task: asyncio.Task[None]) -> None:
        """Cancel a task and wait for its end."""

        async def end() -> None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        self.run(end())

    @staticmethod
    def version() -> str:
        return str(aiokafka.__version__)

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False
    ) -> None:
        self.run(self._produce(topic, records, codec, acks, idempotent))

    async def _produce(self, topic: str, records: Sequence[Record], codec: str, acks: str, idempotent: bool) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.address,
            acks="all" if acks == "all" else int(acks),
            linger_ms=5,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            max_request_size=3_000_000,
            request_timeout_ms=4_000,
        )
        async with producer:
            sent = [
                await producer.send(
                    topic, record.value, record.key, record.partition, record.timestamp, list(record.headers)
                )
                for record in records
            ]
            for future in sent:
                await future

    def consume(self, topic: str, count: int, at: At = BEGINNING, partition: int | None = 0) -> list[Record]:
        got: list[Record] = self.run(self._consume(topic, count, at, partition))
        return got

    async def _consume(self, topic: str, count: int, at: At, partition: int | None) -> list[Record]:
        async with AIOKafkaConsumer(bootstrap_servers=self.address) as consumer:
            if partition is None:
                raise NotApplicable("not needed")
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            if at.kind == "beginning":
                await consumer.seek_to_beginning(place)
            elif at.kind == "offset":
                consumer.seek(place, at.number)
            else:
                found = await consumer.offsets_for_times({place: at.number})
                consumer.seek(place, found[place].offset)
            return await _take(consumer, count)

    def _group_settings(self, group: str, latest: bool = False) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.address,
            "group_id": group,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "auto_offset_reset": "latest" if latest else "earliest",
            "partition_assignment_strategy": (RangePartitionAssignor,),
        }

    def join(
        self, group: str, topic: str, *, latest: bool = False, instance: str | None = None, strategy: str = "range"
    ) -> Member:
        if strategy == "cooperative":
            raise NotApplicable("the client has no cooperative rebalance")
        return GroupMember(self, {**self._group_settings(group, latest), "group_instance_id": instance}, topic)

    def consume_in_group(self, group: str, topic: str, count: int) -> list[Record]:
        got: list[Record] = self.run(self._consume_in_group(group, topic, count))
        return got

    async def _consume_in_group(self, group: str, topic: str, count: int) -> list[Record]:
        settings = {**self._group_settings(group), "enable_auto_commit": False}
        async with AIOKafkaConsumer(topic, **settings) as consumer:
            records = await _take(consumer, count)
            ends = {record.partition: (record.offset or 0) + 1 for record in records}
            await consumer.commit({TopicPartition(topic, p): end for p, end in ends.items()})
            return records

    # --- administration -----------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _admin(self) -> AsyncIterator[Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    def create_topic(self, topic: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        async def work() -> None:
            async with self._admin() as admin:
                told = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs or {})])
                for _, code, *_ in told.topic_errors:
                    if code:
                        raise _refused(code)

        self.run(work())

    def delete_topic(self, topic: str) -> None:
        async def work() -> None:
            async with self._admin() as admin:
                told = await admin.delete_topics([topic])
                for _, code in told.topic_error_codes:
                    if code:
                        raise _refused(code)

        self.run(work())

    def topics(self) -> dict[str, int]:
        async def work() -> dict[str, int]:
            async with self._admin() as admin:
                names = await admin.list_topics()
                return {told["topic"]: len(told["partitions"]) for told in await admin.describe_topics(names)}

        found: dict[str, int] = self.run(work())
        return found

    def topic_config(self, topic: str) -> dict[str, str]:
        async def work() -> dict[str, str]:
            async with self._admin() as admin:
                (told,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
                return {name: value for *_, entries in told.resources for name, value, *_ in entries}

        found: dict[str, str] = self.run(work())
        return found

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        async def work() -> None:
            async with self._admin() as admin:
                await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})])

        self.run(work())

    def groups(self) -> set[str]:
        async def work() -> set[str]:
            async with self._admin() as admin:
                return {told[0] for told in await admin.list_consumer_groups()}

        found: set[str] = self.run(work())
        return found

    def committed(self, group: str, topic: str) -> dict[int, int]:
        async def work() -> dict[int, int]:
            async with self._admin() as admin:
                told = await admin.list_consumer_group_offsets(group)
                return {place.partition: o.offset for place, o in told.items() if place.topic == topic}

        found: dict[int, int] = self.run(work())
        return found


async def _take(consumer: Any, count: int) -> list[Record]:
    records: list[Record] = []
    while len(records) < count:
        for got in (await consumer.getmany(timeout_ms=500, max_records=count - len(records))).values():
            records += map(_record, got)
    return records
