"""An invoice for each order, exactly once: invoices.py SERVER [--until-idle]"""

import json
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

ROUND = 100


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


def read(consumer: Consumer, at_end: set[int]) -> list[Message]:
    """The next orders. Keeps `at_end`, the partitions of which all orders are read."""
    orders = []
    for each in consumer.consume(ROUND, 1.0):
        error = each.error()
        if error is None:
            orders.append(each)
            at_end.discard(each.partition())
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end.add(each.partition())
    return orders


def go_back(consumer: Consumer) -> None:
    """Read on from what is committed: the last round was aborted."""
    for place in consumer.committed(consumer.assignment(), 30):
        consumer.seek(place if place.offset >= 0 else TopicPartition(place.topic, place.partition, 0))


def main() -> None:
    server, until_idle = sys.argv[1], "--until-idle" in sys.argv
    group: dict[str, object] = {"group.id": "invoicing", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    # A process that was killed is missed after six seconds, and another one goes on with its partitions.
    group["session.timeout.ms"] = 6000
    group["enable.partition.eof"] = True
    consumer = Consumer({"bootstrap.servers": server, "isolation.level": "read_committed", **group})
    producer = Producer({"bootstrap.servers": server, "transactional.id": "invoicing"})
    producer.init_transactions()
    consumer.subscribe(["orders"])
    written, at_end = 0, set[int]()
    while True:
        orders = read(consumer, at_end)
        if not orders:
            given = {place.partition for place in consumer.assignment()}
            if until_idle and given and given <= at_end:
                break
            continue
        try:
            write(consumer, producer, orders)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise  # another process has taken over, or the broker is gone for good
            producer.abort_transaction()
            go_back(consumer)
            at_end.clear()
            continue
        written += len(orders)
        print(f"{written} invoices", flush=True)
    consumer.close()


if __name__ == "__main__":
    main()
