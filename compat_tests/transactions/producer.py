"""The Python clients as transactional producers that read commands, one a line; see Producer.java.

python -m compat_tests.transactions.producer CLIENT BOOTSTRAP TRANSACTIONAL_ID TIMEOUT_MS
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Protocol

#: The size of each value of `many`, so that they fill several batches.
SIZE = 1000


class Producer(Protocol):
    def init(self) -> None: ...

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, value: bytes) -> None: ...

    def many(self, topic: str, values: list[tuple[int, bytes]]) -> None: ...

    def offset(self, topic: str, partition: int, offset: int, group: str) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...


class KafkaPython:
    def __init__(self, address: str, transactional_id: str, timeout_ms: int) -> None:
        from kafka import KafkaProducer

        self._producer: Any = KafkaProducer(
            bootstrap_servers=address, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        self.init, self.begin = self._producer.init_transactions, self._producer.begin_transaction
        self.commit, self.abort = self._producer.commit_transaction, self._producer.abort_transaction

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.send(topic, value, partition=partition).get(20)

    def many(self, topic: str, values: list[tuple[int, bytes]]) -> None:
        futures = [self._producer.send(topic, value, partition=partition) for partition, value in values]
        for future in futures:
            future.get(20)

    def offset(self, topic: str, partition: int, offset: int, group: str) -> None:
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        self._producer.send_offsets_to_transaction(
            {TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}, group
        )


class Confluent:
    def __init__(self, address: str, transactional_id: str, timeout_ms: int) -> None:
        from confluent_kafka import Consumer
        from confluent_kafka import Producer as Client

        settings = {"bootstrap.servers": address, "log_level": 0}
        self._producer: Any = Client(
            {**settings, "transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
        )
        self._consumer: Callable[[str], Any] = lambda group: Consumer({**settings, "group.id": group})

    def init(self) -> None:
        self._producer.init_transactions(20)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self.many(topic, [(partition, value)])

    def many(self, topic: str, values: list[tuple[int, bytes]]) -> None:
        failed: list[Any] = []

        def told(error: Any, _: Any) -> None:
            if error:
                failed.append(error)

        for partition, value in values:
            self._producer.produce(topic, value, partition=partition, on_delivery=told)
        self._producer.flush(20)
        if failed:
            raise RuntimeError(failed[0].name())

    def offset(self, topic: str, partition: int, offset: int, group: str) -> None:
        from confluent_kafka import TopicPartition

        consumer = self._consumer(group)
        self._producer.send_offsets_to_transaction(
            [TopicPartition(topic, partition, offset)], consumer.consumer_group_metadata(), 20
        )
        consumer.close()

    def commit(self) -> None:
        self._producer.commit_transaction(20)

    def abort(self) -> None:
        self._producer.abort_transaction(20)


class Aiokafka:
    def __init__(self, address: str, transactional_id: str, timeout_ms: int) -> None:
        from aiokafka import AIOKafkaProducer

        self._runner = asyncio.Runner()

        async def make() -> Any:
            return AIOKafkaProducer(
                bootstrap_servers=address, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            )

        self._producer = self._runner.run(make())

    def _run(self, work: Any) -> None:
        self._runner.run(self._awaited(work))

    async def _awaited(self, work: Any) -> None:
        await asyncio.wait_for(work, 20)

    def init(self) -> None:
        self._run(self._producer.start())

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=partition))

    def many(self, topic: str, values: list[tuple[int, bytes]]) -> None:
        async def send() -> None:
            sent = [await self._producer.send(topic, value, partition=partition) for partition, value in values]
            await asyncio.gather(*sent)

        self._run(send())

    def offset(self, topic: str, partition: int, offset: int, group: str) -> None:
        from aiokafka import TopicPartition

        self._run(self._producer.send_offsets_to_transaction({TopicPartition(topic, partition): offset}, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())


CLIENTS: dict[str, Callable[[str, str, int], Producer]] = {
    "kafka-python": KafkaPython,
    "confluent-kafka": Confluent,
    "aiokafka": Aiokafka,
}


def run(producer: Producer, word: str, *rest: str) -> None:
    """Run one command."""
    if word == "send":
        producer.send(rest[0], int(rest[1]), rest[2].encode())
    elif word == "many":
        values = [f"{rest[3]}-{number}".ljust(SIZE, ".").encode() for number in range(int(rest[2]))]
        partitions = int(rest[1])
        producer.many(rest[0], [(number % partitions, value) for number, value in enumerate(values)])
    elif word == "offset":
        producer.offset(rest[0], int(rest[1]), int(rest[2]), rest[3])
    else:
        getattr(producer, word)()


def main() -> None:
    client, address, transactional_id, timeout_ms = sys.argv[1:]
    producer = CLIENTS[client](address, transactional_id, int(timeout_ms))
    for line in sys.stdin:
        try:
            run(producer, *line.split())
        except Exception as error:
            told = str(error) if type(error) is RuntimeError else _name(error)
            print(told, flush=True)
        else:
            print("ok", flush=True)


def _name(error: Exception) -> str:
    if error.args and hasattr(error.args[0], "name"):  # confluent-kafka has one exception for all errors
        return str(error.args[0].name())
    return type(error).__name__


if __name__ == "__main__":
    main()
