"""An invoice for each order, exactly once: invoices.py SERVER [--until-idle]"""

import json
import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

ROUND = 100
IDLE_SECONDS = 5.0


def invoice(order: dict[str, object]) -> dict[str, object]:
    return {"order": order["id"], "customer": order["customer"], "cents": order["cents"], "paid": False}


def write(consumer: Consumer, producer: Producer, orders: list[Message]) -> None:
    """One transaction: the invoices of these orders, and how far the orders are read."""
    producer.begin_transaction()
    ends: dict[tuple[str, int], int] = {}
    for order in orders:
        producer.produce("invoices", json.dumps(invoice(json.loads(order.value()))), order.key())
        ends[order.topic(), order.partition()] = order.offset() + 1
    offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
    producer.commit_transaction()


def go_back(consumer: Consumer) -> None:
    """Read on from what is committed: the last round was aborted."""
    for place in consumer.committed(consumer.assignment(), 30):
        consumer.seek(place if place.offset >= 0 else TopicPartition(place.topic, place.partition, 0))


def main() -> None:
    server, until_idle = sys.argv[1], "--until-idle" in sys.argv
    group: dict[str, object] = {"group.id": "invoicing", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    # A process that was killed is missed after six seconds, and another one goes on with its partitions.
    group["session.timeout.ms"] = 6000
    consumer = Consumer({"bootstrap.servers": server, "isolation.level": "read_committed", **group})
    producer = Producer({"bootstrap.servers": server, "transactional.id": "invoicing"})
    producer.init_transactions()
    consumer.subscribe(["orders"])
    written, was_given = 0, False
    while True:
        orders = [each for each in consumer.consume(ROUND, IDLE_SECONDS if was_given else 1.0) if each.error() is None]
        was_given = was_given or bool(consumer.assignment())
        if not orders:
            if until_idle and was_given:
                break
            continue
        try:
            write(consumer, producer, orders)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise  # another process has taken over, or the broker is gone for good
            producer.abort_transaction()
            go_back(consumer)
            continue
        written += len(orders)
        print(f"{written} invoices", flush=True)
    consumer.close()


if __name__ == "__main__":
    main()
