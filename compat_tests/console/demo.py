"""Sample data for a broker: topics of a small shop, groups that read them, a query topic."""

from __future__ import annotations

import json
import random
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

CITIES = ("Oslo", "Porto", "Tartu", "Graz", "Ghent", "Turku", "Bergen")
ITEMS = ("lamp", "chair", "desk", "kettle", "shelf", "rug")


def create(address: str, *topics: NewTopic) -> None:
    """Make topics."""
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics(list(topics), operation_timeout=120, request_timeout=120).values():
        made.result()


def fill(address: str, orders: int = 400) -> None:
    """Fill topics with records."""
    create(
        address,
        NewTopic("orders", 6, 1),
        NewTopic("payments", 3, 1),
        NewTopic("customers", 3, 1, config={"cleanup.policy": "compact"}),
        NewTopic("sensors", 2, 1, config={"retention.ms": "86400000"}),
        NewTopic("audit.log", 1, 1, config={"retention.ms": "-1"}),
    )
    producer = Producer({"bootstrap.servers": address})
    start = int(time.time() * 1000) - orders * 1000
    for number in range(orders):
        order = {
            "id": 10_000 + number,
            "customer": {"id": number * 7 % 60, "city": CITIES[number % len(CITIES)]},
            "items": [{"sku": ITEMS[number % len(ITEMS)], "count": 1 + number % 3}],
            "total": round(19.9 + number * 3.7 % 240, 2),
            "paid": number % 4 > 0,
        }
        at = start + number * 1000
        headers = [("trace", b"%016x" % (number * 7919)), ("source", b"web")]
        producer.produce("orders", json.dumps(order), str(order["id"]), timestamp=at, headers=headers)
        if order["paid"]:
            producer.produce("payments", json.dumps({"order": order["id"], "amount": order["total"]}), timestamp=at)
        producer.produce("sensors", json.dumps({"sensor": number % 8, "celsius": 18 + number % 9}), timestamp=at)
    for number in range(60):
        customer = {"name": f"Customer {number}", "city": CITIES[number % len(CITIES)]}
        producer.produce("customers", json.dumps(customer), str(number))
    producer.produce("audit.log", bytes(range(64)), b"binary")
    producer.flush(60)


def commit(address: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit offsets of a group without members."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, p, offset) for p, offset in offsets.items()], asynchronous=False)
    consumer.close()


def member(address: str, group: str, topic: str) -> Consumer:
    """A member of a group, once it has its partitions. The caller closes it."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"})
    assigned: list[object] = []
    consumer.subscribe([topic], on_assign=lambda _, parts: assigned.extend(parts))
    end = time.monotonic() + 120
    while not assigned and time.monotonic() < end:
        consumer.poll(0.2)
    return consumer


def allow_read(address: str, principal: str, topic: str) -> None:
    """Add an ACL that lets a user read a topic."""
    kind, pattern = ResourceType.TOPIC, ResourcePatternType.LITERAL
    acl = AclBinding(kind, topic, pattern, principal, "*", AclOperation.READ, AclPermissionType.ALLOW)
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_acls([acl]).values():
        made.result()


def fill_more(address: str) -> None:
    """Write some more orders."""
    producer = Producer({"bootstrap.servers": address})
    for number in range(random.randint(20, 90)):
        producer.produce("orders", json.dumps({"id": 20_000 + number, "paid": False}), str(number))
    producer.flush(60)


def queries(address: str) -> None:
    """Make query topics over each other."""
    for name, query in {
        "orders-large": "SELECT _key, _value FROM orders WHERE _key > '10100'",
        "orders-first": "SELECT _key, _value FROM `orders-large` WHERE _offset < 40",
        "sensors-copy": "SELECT _key, _value FROM sensors",
    }.items():
        create(address, NewTopic(name, -1, 1, config={"barnabas.query": query}))
