"""`bench/end_to_end.c` in Python, for machines without a C compiler: the same output, and arguments but the first.

python -m bench.end_to_end HOST:PORT TOPIC SECONDS WARM

Its figures are comparable between brokers, but its two threads share one interpreter, which makes the tails longer.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from bench.percentiles import percentiles

RATE = 1000


def end_to_end(server: str, topic: str, seconds: float, warm: float) -> dict[str, float]:
    """The milliseconds from produce() until the consumer has the record; the first `warm` seconds are not measured."""
    unmeasured = int(warm * RATE)
    total = int(seconds * RATE) + unmeasured
    delays: list[float] = []
    ready, finished = threading.Event(), threading.Event()

    def read() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": server,
                "group.id": "latency",
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "fetch.wait.max.ms": 500,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        seen = 0
        while seen < total:
            message = consumer.poll(30)
            if message is None:
                break
            if message.error():
                if message.error().code() == KafkaError._PARTITION_EOF:
                    ready.set()  # other errors pass: Kafka reports new topics with some delay
                continue
            seen += 1
            if seen > unmeasured:
                delays.append(time.perf_counter() - float(message.value()[:20]))
        consumer.close()
        finished.set()

    threading.Thread(target=read, daemon=True).start()
    producer = Producer({"bootstrap.servers": server, "acks": "all", "linger.ms": 0})
    producer.list_topics(topic, timeout=30)
    if not ready.wait(30):
        raise SystemExit("the consumer did not reach the end of the topic")
    began = time.perf_counter()
    for number in range(total):
        if number == unmeasured:
            print("measuring", flush=True)
        pause = began + number / RATE - time.perf_counter()
        if pause > 0:
            time.sleep(pause)  # keeps the rate steady
        producer.produce(topic, f"{time.perf_counter():<20.9f}".encode() + bytes(80), partition=0)
        producer.poll(0)
    producer.flush(30)
    finished.wait(30)
    print("measured", flush=True)
    if len(delays) < total - unmeasured:
        raise SystemExit(f"{total - unmeasured - len(delays)} records did not arrive")
    return {"requests": len(delays), **percentiles(delays)}


if __name__ == "__main__":
    print(json.dumps(end_to_end(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))))
