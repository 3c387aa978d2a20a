"""Streams: the delay of results for one stream and for twenty over one source, the CPU of quiet ones, a backlog.

    python -m bench.streams [--records 4000000] [--seconds 40] [--json FILE]

Records have 1,000 keys and come at 1,000 a second; a record's timestamp is its event time. There are 2 partitions,
Spark runs at local[2], the broker has its default durability, and the write rate of streams has no limit. `delay` is
the time from the end of a window, by the clock, until a read_committed consumer has its result. CPU is that of driver,
JVM and workers. The twenty streams differ in window, aggregates and condition. `quiet` are twenty streams, each over a
source of its own that got its last record some minutes ago, so that most of their queries rest. The backlog has one
record every 10 ms of event time and windows of a minute, so that a window of a key holds 6 records; the dense backlog
has a hundred times as many. `with its start` counts from the statement that makes the stream.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.client.admin import create_topic, delete_topic
from barnabas.client.cluster import Cluster
from barnabas.client.errors import check
from barnabas.scripts.status import last_status
from barnabas.wire.queries.messages import StreamStatus
from bench.servers import Meter
from compat_tests.broker_process import Barnabas
from compat_tests.query_topics.processes import processes

PARTITIONS, KEYS, RATE = 2, 1000, 1000
SCHEMA = {"barnabas.value.format": "json", "barnabas.value.schema": "device STRING, temp DOUBLE, n BIGINT"}
ONE = "SELECT _wend, device, avg(temp) AS t FROM {source} PARTITION BY device INTERVAL(10s) SLIDING(5s)"
KINDS = (
    ONE,
    "SELECT _wend, device, min(temp) AS a, max(temp) AS b FROM {source} PARTITION BY device INTERVAL(10s)",
    "SELECT _wend, device, count(*) c, sum(n) AS s FROM {source} WHERE n > {number} PARTITION BY device INTERVAL(5s)",
    "SELECT _wend, avg(temp) AS t, spread(temp) AS s FROM {source} INTERVAL({number}s) SLIDING(1s)",
)
QUIET = 20
WARM_SECONDS, QUIET_SECONDS = 20.0, 150.0
DEADLINE = 600.0
Figure = tuple[str, str, float]


def make(cluster: Cluster, topic: str, text: str) -> float:
    """Make a stream; returns the seconds that it took."""
    began = time.perf_counter()
    made = create_topic(cluster, topic, {"barnabas.stream": text}, partitions=1)
    check(made.error_code, topic, made.error_message)
    return time.perf_counter() - began


def streams_of(cluster: Cluster) -> dict[str, StreamStatus]:
    """The status of each stream, by topic."""
    status = last_status(cluster)
    return {stream.topic: stream for stream in (status.streams if status else ())}


def wait(cluster: Cluster, topics: Sequence[str], done: Callable[[StreamStatus], bool]) -> None:
    """Return when `done` holds for all of these streams."""
    until = time.monotonic() + DEADLINE
    while True:
        told = streams_of(cluster)
        if all(topic in told and done(told[topic]) for topic in topics):
            return
        assert time.monotonic() < until, told
        time.sleep(0.1)


def value(number: int) -> str:
    return json.dumps(
        {"device": f"device {number % KEYS}", "temp": number % 400 / 10, "n": number % 1000, "x": "x" * 60}
    )


def send(server: str, topic: str, ends: threading.Event) -> None:
    """Send records at a steady rate, until the event `ends` is set."""
    producer = Producer({"bootstrap.servers": server, "linger.ms": 5})
    began, number = time.perf_counter(), 0
    while not ends.is_set():
        pause = began + number / RATE - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
        producer.produce(topic, value(number), partition=number % PARTITIONS)
        producer.poll(0)
        number += 1
    producer.flush()


def delays(server: str, topics: Sequence[str], seconds: float) -> list[float]:
    """Seconds from the ends of windows to their results, sorted, for all results that come within `seconds`."""
    consumer = Consumer({"bootstrap.servers": server, "group.id": "bench", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0) for topic in topics])
    until, found = time.monotonic() + seconds, []
    while time.monotonic() < until:
        for message in consumer.consume(1000, 0.05):
            if message.error() is None:
                end = datetime.fromisoformat(json.loads(message.value() or b"")["_wend"])
                found.append(time.time() - end.timestamp())
    consumer.close()
    return sorted(found)


class Load:
    """A source topic that a thread fills at a steady rate."""

    def __init__(self, broker: Barnabas, cluster: Cluster, source: str) -> None:
        self._ends = threading.Event()
        create_topic(cluster, source, SCHEMA, partitions=PARTITIONS)
        self._thread = threading.Thread(target=send, args=(broker.address, source, self._ends))
        self._thread.start()

    def end(self) -> None:
        """Stop filling it."""
        self._ends.set()
        self._thread.join()


def steady(broker: Barnabas, cluster: Cluster, count: int, seconds: float) -> list[Figure]:
    """The delay, CPU and memory of some streams over one source."""
    source = f"source-{count}"
    load = Load(broker, cluster, source)
    names, made = [], []
    try:
        for number in range(count):
            names.append(f"{source}-{number}")
            made.append(
                make(cluster, names[-1], KINDS[number % len(KINDS)].format(source=f"`{source}`", number=number + 1))
            )
        wait(cluster, names, lambda told: told.rows > 0)
        time.sleep(WARM_SECONDS)
        driver = Meter(processes(broker, "driver")[0].pid)
        began, cpu = time.perf_counter(), driver.cpu()
        found = delays(broker.address, names, seconds)
        cores = (driver.cpu() - cpu) / (time.perf_counter() - began)
        told = [each for topic, each in streams_of(cluster).items() if topic in names]
    finally:
        load.end()
        for name in names:
            delete_topic(cluster, name)
    what = f"{count} stream{'s' * (count > 1)}"
    return [
        (f"{what}, queries", "", len({each.query for each in told})),
        (f"{what}, delay p50", "s", found[len(found) // 2]),
        (f"{what}, delay p99", "s", found[len(found) * 99 // 100]),
        (f"{what}, a batch", "ms", max(each.batch_ms for each in told)),
        (f"{what}, lag", "records", max(each.lag or 0 for each in told)),
        (f"{what}, CPU", "cores", cores),
        (f"{what}, making one more", "s", max(made[1:], default=made[0])),
    ]


def quiet(broker: Barnabas, cluster: Cluster, seconds: float) -> list[Figure]:
    """The CPU and memory of streams over quiet sources."""
    names = [f"quiet-{number}" for number in range(QUIET)]
    for name in names:
        create_topic(cluster, f"source-of-{name}", SCHEMA, partitions=PARTITIONS)
        make(cluster, name, ONE.format(source=f"`source-of-{name}`"))
    producer = Producer({"bootstrap.servers": broker.address})
    for name in names:
        producer.produce(f"source-of-{name}", value(0))
    producer.flush()
    wait(cluster, names, lambda told: told.state == "RUNNING" and told.state_rows > 0)
    time.sleep(QUIET_SECONDS)
    driver = Meter(processes(broker, "driver")[0].pid)
    began, cpu = time.perf_counter(), driver.cpu()
    time.sleep(seconds)
    cores = (driver.cpu() - cpu) / (time.perf_counter() - began)
    memory = driver.rss() / 1024
    for name in names:
        delete_topic(cluster, name)
    return [(f"{QUIET} quiet streams, CPU", "cores", cores), (f"{QUIET} quiet streams, memory", "GB", memory)]


def filled(server: str, topic: str, records: int, step_us: int) -> None:
    """Fill a topic with one record every `step_us` microseconds of event time, the last one now."""
    producer = Producer({"bootstrap.servers": server, "linger.ms": 50, "batch.size": 1 << 18})
    first = int(time.time() * 1000) - records * step_us // 1000 - 1000
    for number in range(records):
        at = first + number * step_us // 1000
        while True:
            try:
                producer.produce(topic, value(number), partition=number % PARTITIONS, timestamp=at)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def of_backlog(source: str, tasks: int) -> str:
    """A stream over all of a topic."""
    return (
        f"PARALLELISM {tasks} FILL_HISTORY 1 WATERMARK 1s AS SELECT _wend, device, avg(temp) AS t FROM `{source}` "
        "PARTITION BY device INTERVAL(1m)"
    )


def backlog(broker: Barnabas, cluster: Cluster, records: int, step_us: int, tasks: int = 1) -> list[Figure]:
    """Records a second of a stream over a full topic, with its state in `tasks` tasks.

    There are two figures: from the stream's first batch on, and from the statement that makes the stream.
    """
    source = f"backlog-{step_us}"
    create_topic(cluster, source, SCHEMA, partitions=PARTITIONS)
    filled(broker.address, source, records, step_us)
    name = f"out-of-{source}"
    began = time.perf_counter()
    make(cluster, name, of_backlog(source, tasks))
    wait(cluster, [name], lambda told: 0 < (told.lag or 0) < records)
    left, at = streams_of(cluster)[name].lag or 0, time.perf_counter()
    wait(cluster, [name], lambda told: told.lag == 0)
    took, ran = time.perf_counter() - began, time.perf_counter() - at
    delete_topic(cluster, name)
    delete_topic(cluster, source)
    what = f"backlog, {'dense' if step_us < 1000 else 'sparse'}{f', {tasks} tasks' if tasks > 1 else ''}"
    return [(what, "records/s", left / ran), (f"{what}, with its start", "records/s", records / took)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file, too")
    args = parser.parse_args()
    settings: dict[str, Any] = {
        "barnabas.streams.master": "local[2]",
        "barnabas.streams.max": "32",
        "barnabas.streams.sink.bytes.per.second": "0",
    }
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        broker = Barnabas(Path(folder), {**settings, "num.partitions": str(PARTITIONS)})
        broker.start()
        try:
            with Cluster(broker.address) as cluster:
                parts: list[Callable[[], list[Figure]]] = [
                    partial(steady, broker, cluster, 1, args.seconds),
                    partial(steady, broker, cluster, 20, args.seconds),
                    partial(quiet, broker, cluster, args.seconds),
                    partial(backlog, broker, cluster, args.records, 10_000),
                    partial(backlog, broker, cluster, args.records, 100),
                    partial(backlog, broker, cluster, args.records, 10_000, 2),
                    partial(backlog, broker, cluster, args.records, 100, 2),
                ]
                for part in parts:
                    figures += (found := part())
                    for what, unit, figure in found:
                        print(f"{what:<30} {figure:>10,.3g} {unit}", flush=True)
        finally:
            broker.stop()
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
