"""Transactions with our own client (bench/transactions.py), and the cost of aborted transactions for a reader."""

from __future__ import annotations

import sys

from confluent_kafka import Producer

from barnabas.client.cluster import Cluster
from barnabas.client.produce import Batch, produce
from bench import client, frames
from bench.create import create
from bench.rows import throughput
from bench.running import Running
from bench.servers import Clock

SECONDS = 5.0


def _run(running: Running, topic: str, producers: int, *source: str) -> dict[str, float]:
    host, port = running.address.split(":")
    words = [host, port, topic, str(producers), str(SECONDS), *source]
    found, clock = client.run([sys.executable, "-m", "bench.transactions", *words], running.meter)
    return figures(found, clock)


def figures(found: client.Found, clock: Clock) -> dict[str, float]:
    """Transactions per second, their latencies, and the broker's CPU time for each."""
    return {
        "txn/s": found["rate"],
        "p50 ms": found["p50"],
        "p99 ms": found["p99"],
        "CPU us/txn": clock.cpu / found["transactions"] * 1e6,
    }


def transactions(running: Running, producers: int) -> dict[str, float]:
    """Begin, write ten records to three partitions, commit."""
    create(running.address, f"transactions-{producers}", 3)
    return _run(running, f"transactions-{producers}", producers)


def transform(running: Running, producers: int) -> dict[str, float]:
    """Fetch ten records, write ten to three partitions, add the offset to the transaction, commit."""
    source, target = f"transform-{producers}-source", f"transform-{producers}"
    create(running.address, source, producers)
    create(running.address, target, 3)
    _fill(running, source, producers)
    return _run(running, target, producers, source)


def _fill(running: Running, topic: str, partitions: int) -> None:
    """Write a few thousand records to each partition, in batches of ten."""
    with Cluster(running.address) as cluster:
        data = frames.batch(100, 10)
        for _ in range(300):
            produce(cluster, [Batch(topic, partition, data) for partition in range(partitions)])


def aborted(running: Running) -> dict[str, float]:
    """A read_committed consumer of a topic with 1 % aborted transactions, compared with a topic without any."""
    found = {}
    for topic, part in (("none-aborted", 0), ("some-aborted", 100)):
        create(running.address, topic, 3)
        size = _write_transactions(running, topic, part)
        for times in (0, 1):
            with Clock(running.meter) as clock:
                throughput.read(running, topic, size // throughput.SIZE_1K)
            if times:
                found[topic] = throughput.figures(clock, size)
    plain, some = found["none-aborted"], found["some-aborted"]
    return {
        "plain MB/s": plain["MB/s"],
        "MB/s": some["MB/s"],
        "CPU s/GB": some["CPU s/GB"],
        "cost of a plain one x": plain["MB/s"] / some["MB/s"],
        "CPU of a plain one x": some["CPU s/GB"] / plain["CPU s/GB"],
    }


def _write_transactions(running: Running, topic: str, abort_each: int) -> int:
    """Write a thousand transactions of 300 records of 1 KiB, 1st, 101st, ... aborted; returns the committed bytes."""
    producer = Producer(
        {"bootstrap.servers": running.address, "transactional.id": topic, "linger.ms": 5, "batch.size": 100_000}
    )
    producer.init_transactions(60)
    value, committed = bytes(throughput.SIZE_1K), 0
    for number in range(1000):
        producer.begin_transaction()
        for record in range(300):
            producer.produce(topic, value, partition=record % 3)
        producer.flush(60)
        if abort_each and number % abort_each == 0:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
            committed += 300 * len(value)
    return committed
