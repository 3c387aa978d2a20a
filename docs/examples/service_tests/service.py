"""Orders by HTTP, kept in a topic."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel


class Order(BaseModel):
    item: str
    count: int


def service(bootstrap_servers: str, topic: str) -> FastAPI:
    """The application, for one broker and topic."""
    app = FastAPI()
    patience = {"message.timeout.ms": 2000, "enable.idempotence": True}
    producer = Producer({"bootstrap.servers": bootstrap_servers, **patience})

    @app.post("/orders", status_code=201)
    def add(order: Order) -> Order:
        failures: list[str] = []
        producer.produce(topic, order.model_dump_json(), on_delivery=lambda error, _: failures.append(str(error or "")))
        producer.flush(10)
        if failures != [""]:
            raise HTTPException(503, "the order could not be kept: try again later")
        return order

    @app.get("/orders/{count}")
    def newest(count: int) -> list[Order]:
        with reading(bootstrap_servers) as consumer:
            place = TopicPartition(topic, 0)
            first, end = consumer.get_watermark_offsets(place, 10)
            consumer.assign([TopicPartition(topic, 0, max(first, end - count))])
            found = consumer.consume(min(count, end - first), 10)
        return [Order(**json.loads(each.value())) for each in found]

    return app


@contextmanager
def reading(bootstrap_servers: str) -> Iterator[Consumer]:
    """A consumer without a group."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "none", "enable.auto.commit": False})
    try:
        yield consumer
    except KafkaException as error:
        raise HTTPException(503, str(error)) from error
    finally:
        consumer.close()
