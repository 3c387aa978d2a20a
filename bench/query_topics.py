"""Query topics: the first query on a cold machine, a backlog, latency at a steady rate, eight queries on one driver.

    python -m bench.query_topics [--records 3000000] [--seconds 20] [--json FILE]

Records are those of `bench.spark_scan` (about 180 bytes, JSON), with 2 partitions, Spark at local[2] and the broker's
default durability. `backlog` is the time from the creation of the query, with a running driver, until it has processed
its source to the end, for a query that lets 1 % of the records through and one that lets all through. `end to end` is
the time from a record's send until a consumer has its result, at 1,000 records/s. `eight queries` are eight different
queries over the same source at that rate: the lag at the end, and the CPU of driver, JVM and workers.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.client.admin import create_topic, set_topic_config
from barnabas.client.cluster import Cluster
from barnabas.client.errors import check
from barnabas.client.offsets import LATEST, list_offsets
from barnabas.scripts.status import last_status
from barnabas.wire.compression import CompressionType
from barnabas.wire.table import table
from bench.servers import Meter
from bench.spark_kafka import fill
from bench.spark_scan import PARTITIONS, batches_of
from compat_tests.broker_process import Barnabas
from compat_tests.query_topics.processes import processes

SCHEMA = {
    "barnabas.value.format": "json",
    "barnabas.value.schema": "device STRING, seq BIGINT, temp DOUBLE, note STRING",
}
RATE = 1000
POLL_SECONDS = 0.005


def query(cluster: Cluster, topic: str, text: str) -> float:
    """Make a query topic; returns the seconds that it took."""
    began = time.perf_counter()
    made = create_topic(cluster, topic, {"barnabas.query": text})
    check(made.error_code, topic, made.error_message)
    return time.perf_counter() - began


def end(cluster: Cluster, topic: str) -> int:
    """The sum of a topic's end offsets."""
    return sum(list_offsets(cluster, [(topic, p) for p in range(PARTITIONS)], LATEST).values())


def backlog(cluster: Cluster, topic: str, text: str, count: int) -> float:
    """The source's records per second, until the query has processed it to the end."""
    began = time.perf_counter()
    query(cluster, topic, text)
    while end(cluster, topic) < count:
        time.sleep(POLL_SECONDS)
    return count / (time.perf_counter() - began)


def steady(server: str, topic: str, seconds: float, stop: threading.Event) -> None:
    """Send records at a steady rate, each with the time of its send."""
    producer = Producer({"bootstrap.servers": server, "linger.ms": 1})
    began = time.perf_counter()
    for number in range(int(RATE * seconds)):
        wait = began + number / RATE - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        if stop.is_set():
            break
        value = {"device": f"d{number % 100}", "seq": time.time_ns(), "temp": number % 400 / 10, "note": "x" * 90}
        producer.produce(topic, json.dumps(value), partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush()


def latency(server: str, source: str, results: str, seconds: float) -> list[float]:
    """Milliseconds from send to result, sorted; the first quarter is left out."""
    consumer = Consumer({"bootstrap.servers": server, "group.id": "bench", "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition(results, p) for p in range(PARTITIONS)])
    stop = threading.Event()
    sender = threading.Thread(target=steady, args=(server, source, seconds, stop))
    sender.start()
    found: list[float] = []
    expected = int(RATE * seconds)
    while len(found) < expected:
        message = consumer.poll(30)
        if message is None:
            break
        if message.error() is None:
            found.append((time.time_ns() - json.loads(message.value() or b"")["seq"]) / 1e6)
    stop.set()
    sender.join()
    consumer.close()
    return sorted(found[len(found) // 4 :])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file, too")
    args = parser.parse_args()
    figures: list[tuple[str, str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        broker = Barnabas(Path(folder), {"barnabas.streams.master": "local[2]", "num.partitions": str(PARTITIONS)})
        broker.start()
        try:
            with Cluster(broker.address) as cluster:
                for topic in ("live", "crowd"):
                    create_topic(cluster, topic, SCHEMA, partitions=PARTITIONS)
                figures.append(("first query, cold", "s", query(cluster, "echo", "SELECT * FROM live")))
                batches, each, count = batches_of(args.records, CompressionType.NONE)
                fill(broker.address, "t", batches, count, PARTITIONS)
                set_topic_config(cluster, "t", SCHEMA)
                total = count * each * PARTITIONS
                for name, text in [
                    ("1 % of them", "SELECT device, temp FROM t WHERE temp >= 39.6"),
                    ("1 % of them, again", "SELECT device, temp FROM t WHERE temp >= 39.6 AND seq >= 0"),
                    ("all of them", "SELECT device, seq, temp FROM t"),
                    ("whole values", "SELECT _value FROM t"),
                ]:
                    topic = name.translate(str.maketrans(" %,", "---"))
                    figures.append((f"backlog, {name}", "records/s", backlog(cluster, topic, text, total)))
                found = latency(broker.address, "live", "echo", args.seconds)
                for part in (50, 99):
                    figures.append((f"end to end, p{part}", "ms", found[len(found) * part // 100]))
                figures += eight(broker, cluster, args.seconds)
        finally:
            broker.stop()
    print(table(("what", "unit", "figure"), [(what, unit, f"{figure:,.3g}") for what, unit, figure in figures]))
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=1))


def eight(broker: Barnabas, cluster: Cluster, seconds: float) -> list[tuple[str, str, float]]:
    """Eight queries over one source at the steady rate."""
    names = [f"eight-{number}" for number in range(8)]
    for number, name in enumerate(names):
        query(cluster, name, f"SELECT device, temp * {number} AS temp FROM crowd WHERE temp >= {number * 5}")
    assert broker.process
    stop = threading.Event()
    steady(broker.address, "crowd", 5, stop)
    (process,) = processes(broker, "driver")
    driver = Meter(process.pid)
    began, cpu = time.perf_counter(), driver.cpu()
    steady(broker.address, "crowd", seconds, stop)
    behind = max(end(cluster, "crowd") - end(cluster, name) for name in names)
    took = time.perf_counter() - began
    status = last_status(cluster)
    batches = [query.batch_ms for query in (status.queries if status else ()) if query.topic in names]
    return [
        ("eight queries, lag at the end", "records", behind),
        ("eight queries, a batch", "ms", max(batches, default=0.0)),
        ("eight queries, CPU of the driver", "cores", (driver.cpu() - cpu) / took),
    ]


if __name__ == "__main__":
    main()
