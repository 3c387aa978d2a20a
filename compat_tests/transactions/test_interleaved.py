"""Transactions of several batches and partitions that run at the same time, and what readers see while one is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as Partition
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Place
from kafka import KafkaConsumer, TopicPartition

from compat_tests.broker_process import Server
from compat_tests.tools import missing
from compat_tests.transactions.processes import Producer, everyone_reads, java_lines
from compat_tests.waiting import until

COUNT = 100  # values of 1,000 bytes: several batches in each of two partitions


def test_interleaved_transactions_of_several_batches(client: str, server: Server, topic: str) -> None:
    with (
        Producer(client, server.address, f"{topic}.a") as first,
        Producer(client, server.address, f"{topic}.b") as second,
    ):
        for producer in (first, second):
            producer.do("init")
        for turn, outcome in enumerate(("commit", "abort")):
            for producer in (first, second):
                producer.do("begin")
            first.do("many", topic, 2, COUNT, f"a{turn}")
            second.do("many", topic, 2, COUNT, f"b{turn}")
            first.do("many", topic, 2, COUNT, f"c{turn}")
            second.do("commit")
            first.do(outcome)
        first.do("begin")
        first.do("many", topic, 2, 2, "end")
        first.do("commit")

    def of(partition: int) -> list[str]:
        names = [f"{name}-{number}" for name in ("a0", "b0", "c0", "b1") for number in range(partition, COUNT, 2)]
        return [name.ljust(1000, ".") for name in [*names, f"end-{partition}"]]

    everyone_reads(server.address, topic, of(0), of(1))


def _kafka_python(address: str, topic: str) -> tuple[int, int]:
    consumer = KafkaConsumer(bootstrap_servers=address, isolation_level="read_committed", auto_offset_reset="earliest")
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    seen = 0
    while seen < 3:
        seen += sum(map(len, consumer.poll(1000).values()))
    end: int = consumer.end_offsets([place])[place]
    until(lambda: consumer.poll(100) == {} and consumer.position(place) == end, "the position is behind the marker")
    consumer.close()
    return end, end


def _confluent(address: str, topic: str) -> tuple[int, int]:
    settings = {"bootstrap.servers": address, "group.id": "ends", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "fetch.wait.max.ms": 10})
    consumer.assign([Place(topic, 0, 0)])
    while True:
        message = consumer.poll(20)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            break
    _, high = consumer.get_watermark_offsets(Place(topic, 0), 20)
    consumer.close()
    return message.offset() or 0, high


def _aiokafka(address: str, topic: str) -> tuple[int, int]:
    async def look() -> tuple[int, int]:
        place = Partition(topic, 0)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=address, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        await consumer.start()
        consumer.assign([place])
        end: int = (await consumer.end_offsets([place]))[place]
        for _ in range(3):
            await asyncio.wait_for(consumer.getone(), 20)
        more = asyncio.ensure_future(consumer.getone())  # skips the marker, and waits
        while await consumer.position(place) < end:
            await asyncio.sleep(0)
        assert not more.done()
        more.cancel()
        position: int = await consumer.position(place)
        await consumer.stop()
        return position, end

    return asyncio.run(look())


def _java(address: str, topic: str) -> tuple[int, int]:
    position, end = java_lines("Ends.java", address, topic)
    return int(position), int(end)


ENDS: dict[str, Callable[[str, str], tuple[int, int]]] = {
    "kafka-python": _kafka_python,
    "confluent-kafka": _confluent,
    "aiokafka": _aiokafka,
    "java": _java,
}


@pytest.mark.parametrize("reader", ENDS)
def test_position_and_end_stop_at_an_open_transaction(reader: str, server: Server, new_topic: str) -> None:
    if reason := missing(reader):
        pytest.skip(reason)
    with Producer("confluent-kafka", server.address, new_topic) as producer:
        producer.do("init")
        producer.do("begin")
        for number in range(3):
            producer.do("send", new_topic, 0, number)
        producer.do("commit")
        producer.do("begin")
        producer.do("send", new_topic, 0, "open")
        assert ENDS[reader](server.address, new_topic) == (4, 4), "behind the marker, before what is open"
        producer.do("commit")
