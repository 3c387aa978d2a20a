"""The clients of the benchmark, each in a process of its own: `python -m bench.load WORK HOST:PORT [key=value ...]`.

Throughput runs on librdkafka (confluent-kafka, and kcat where Python would be the limit); latency of one request on a
plain socket with a frame made beforehand, so that the client's own work is not in it. The result is one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench import many
from bench.percentiles import percentiles


def create(server: str, topic: str = "bench", partitions: int = 6) -> dict[str, Any]:
    """Make a topic."""
    admin = AdminClient({"bootstrap.servers": server})
    began = time.perf_counter()
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(60)
    return {"seconds": time.perf_counter() - began}


KCAT = ["kcat", "-q", "-X", "batch.size=1000000", "-X", "batch.num.messages=100000"]


def produce_kcat(server: str, topic: str = "bench", file: str = "", bytes_: int = 0) -> dict[str, Any]:
    """The lines of a file through kcat, which is C throughout."""
    options = ["acks=all", "linger.ms=5", "queue.buffering.max.messages=1000000", "queue.buffering.max.kbytes=262144"]
    words = [word for option in options for word in ("-X", option)]
    began = time.perf_counter()
    subprocess.run([*KCAT, "-P", "-b", server, "-t", topic, "-l", file, *words], check=True)
    return {"seconds": time.perf_counter() - began, "bytes": bytes_}


def consume_kcat(server: str, topic: str = "bench", bytes_: int = 0) -> dict[str, Any]:
    """All that is in a topic, through kcat; nothing is printed."""
    options = ["fetch.message.max.bytes=8388608", "queued.max.messages.kbytes=262144", "check.crcs=false"]
    words = [word for option in options for word in ("-X", option)]
    began = time.perf_counter()
    subprocess.run(
        [*KCAT, "-C", "-e", "-o", "beginning", "-f", "", "-b", server, "-t", topic, *words], check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return {"seconds": time.perf_counter() - began, "bytes": bytes_}


def single(
    server: str, topic: str = "bench", seconds: float = 5, in_flight: int = 5, size: int = 100
) -> dict[str, Any]:
    """One record per request, several requests in flight on one connection, on a plain socket."""
    wire, frame = _produce_frame(server, topic, 100)
    answer = _answer_size(wire, frame)
    for _ in range(200 * in_flight):
        wire.sendall(frame)
        _exactly(wire, answer)
    for _ in range(in_flight):
        wire.sendall(frame)
    count, end = 0, time.perf_counter() + seconds
    began = time.perf_counter()
    while time.perf_counter() < end:
        got = len(wire.recv(answer * in_flight)) // answer or 1
        wire.sendall(frame * got)
        count += got
    return {"seconds": time.perf_counter() - began, "requests": count}


def sync(server: str, topic: str = "bench", seconds: float = 5, size: int = 100) -> dict[str, Any]:
    """One record, its acknowledgement, the next record: the latency of each."""
    wire, frame = _produce_frame(server, topic, size)
    answer = _answer_size(wire, frame)
    for _ in range(2000):
        wire.sendall(frame)
        _exactly(wire, answer)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        wire.sendall(frame)
        _exactly(wire, answer)
        times.append(time.perf_counter() - began)
    return {"seconds": seconds, "requests": len(times), **percentiles(times)}


def end_to_end(
    server: str, topic: str = "bench", seconds: float = 10, rate: int = 1000, size: int = 100
) -> dict[str, Any]:
    """Records at a steady rate through librdkafka; from produce() until the consumer has each."""
    warm = 2 * rate
    total = int(seconds * rate) + warm
    delays: list[float] = []
    ready, finished = threading.Event(), threading.Event()

    def read() -> None:
        consumer = Consumer({
            "bootstrap.servers": server, "group.id": "latency", "enable.auto.commit": False,
            "auto.offset.reset": "latest", "fetch.wait.max.ms": 500, "enable.partition.eof": True,
        })  # fmt: skip
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        seen = 0
        while seen < total:
            message = consumer.poll(30)
            if message is None:
                break
            if message.error():
                if message.error().code() == KafkaError._PARTITION_EOF:
                    ready.set()  # other errors pass, as Kafka tells of new topics with some delay
                continue
            seen += 1
            if seen > warm:
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
        pause = began + number / rate - time.perf_counter()
        if pause > 0:
            time.sleep(pause)  # the rate is the load
        producer.produce(topic, f"{time.perf_counter():<20.9f}".encode() + bytes(80), partition=0)
        producer.poll(0)
    producer.flush(30)
    finished.wait(30)
    return {"requests": len(delays), **percentiles(delays)}


def _produce_frame(server: str, topic: str, size: int) -> tuple[Any, bytes]:
    """A connected socket and a Produce request of one record for partition 0."""
    from scripts.client import Wire, parse_server
    from wire.batch import Record, build_batch
    from wire.codegen import codec
    from wire.header import write_request_header
    from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    connection = Wire(*parse_server(server))
    data = build_batch([Record(None, bytes(size), int(time.time() * 1000))])
    part = PartitionProduceData(0, data)
    request = ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[TopicProduceData(topic, partition_data=[part])])
    frame = write_request_header(0, 9, 7, "bench", True) + codec(ProduceRequest, 9).build(request)
    return connection._socket, len(frame).to_bytes(4, "big") + frame


def _exactly(wire: Any, size: int) -> bytes:
    data: bytes = wire.recv(size)
    while len(data) < size:
        data += wire.recv(size - len(data))
    return data


def _answer_size(wire: Any, frame: bytes) -> int:
    wire.sendall(frame)
    size = 4 + int.from_bytes(_exactly(wire, 4), "big")
    body = _exactly(wire, size - 4)
    from wire.codegen import codec
    from wire.messages.produce import ProduceResponse

    code = codec(ProduceResponse, 9).decode(body, 5)[0].responses[0].partition_responses[0].error_code
    if code:
        raise SystemExit(f"produce failed with error {code}")
    return size


WORK: dict[str, Callable[..., dict[str, Any]]] = {
    "create": create,
    "produce-kcat": produce_kcat,
    "consume-kcat": consume_kcat,
    "single": single,
    "sync": sync,
    "end-to-end": end_to_end,
    "producers": many.producers,
    "connections": many.connections,
    "partitions": many.partitions,
    "groups": many.groups,
}


def main() -> None:
    """Run one piece of work and print its result."""
    work, server, *options = sys.argv[1:]
    named: dict[str, Any] = {}
    for option in options:
        key, _, text = option.partition("=")
        named[key] = int(text) if text.isdigit() else float(text) if text.replace(".", "", 1).isdigit() else text
    print(json.dumps(WORK[work](server, **named)))


if __name__ == "__main__":
    main()
