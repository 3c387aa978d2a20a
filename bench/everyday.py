"""Streams and query topics at common rates, compared with the alternatives.

    python -m bench.everyday [--seconds 30] [--rates 10,100,1000,10000] [--only stream,query] [--json FILE]

All rows run on one barnabas broker with its default durability, one after the other, each over a new source of 2
partitions. Records are JSON of about 110 bytes with 1,000 keys. They come at a steady rate; a record's timestamp is its
event time.

    stream         averages and the like by key over windows of 10 s (of 20 streams some have 5 s, or conditions)
    query          a query topic that filters (WHERE temp > 20), and lets about half of the records through
    Kafka Streams  the stream's average, exactly once; of 20 each has an aggregation of its own over one repartition
    connector      the stream's average on Spark with its Kafka connector, as fast as it can, without transactions
    script         the query as a consumer and a producer of 30 lines of Python (confluent-kafka)

`cores` and `memory` (sum of the processes' proportional set sizes) are those of the driver with its JVM and workers, or
of the peer's process; `broker` is the cores of barnabas itself. `delay` is the time from the end of a window, by the
clock, or from the send of a record, until a read_committed consumer has its result.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.client.admin import create_topic, delete_topic
from barnabas.client.cluster import Cluster
from barnabas.client.errors import check
from barnabas.client.offsets import LATEST, list_offsets
from barnabas.wire.table import table
from bench.servers import Meter
from bench.spark_kafka import connector
from compat_tests.broker_process import Barnabas
from compat_tests.ecosystem.jvm import CLASS_PATH
from compat_tests.query_topics.processes import processes
from compat_tests.tools import missing
from compat_tests.waiting import until

PARTITIONS, KEYS = 2, 1000
SCHEMA = {"barnabas.value.format": "json", "barnabas.value.schema": "device STRING, temp DOUBLE, n BIGINT, sent BIGINT"}
WINDOW_SECONDS, WARM_SECONDS, PATIENT = 10, 25.0, 400.0
STREAMS = (
    "SELECT _wend, device, avg(temp) AS t FROM {source} PARTITION BY device INTERVAL(10s)",
    "SELECT _wend, device, min(temp) AS a, max(temp) AS b FROM {source} PARTITION BY device INTERVAL(10s)",
    "SELECT _wend, device, count(*) c, sum(n) AS s FROM {source} WHERE n > {number} PARTITION BY device INTERVAL(5s)",
    "SELECT _wend, avg(temp) AS t, spread(temp) AS s FROM {source} INTERVAL({length}s)",
)
QUERY = "SELECT * FROM {source} WHERE temp > {least}"
_SCRIPT = """
import json, sys
from confluent_kafka import Consumer, Producer
server, source, target = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": server, "group.id": target, "auto.offset.reset": "earliest"})
consumer.subscribe([source])
producer = Producer({"bootstrap.servers": server, "linger.ms": 5})
while True:
    message = consumer.poll(1)
    if message is not None and message.error() is None and json.loads(message.value())["temp"] > 20:
        producer.produce(target, message.value(), message.key())
    producer.poll(0)
"""
_CONNECTOR = """
import sys
from pyspark.sql import SparkSession, functions as F
server, folder, jars, topic, target = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2").config("spark.driver.memory", "1g").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", server).option("subscribe", topic).load()
rows = rows.select("timestamp", F.from_json(F.col("value").cast("string"), "device STRING, temp DOUBLE").alias("v"))
found = rows.withWatermark("timestamp", "0 seconds").groupBy(F.window("timestamp", "10 seconds"), "v.device").agg(
    F.avg("v.temp").alias("t"))
value = F.to_json(F.struct((F.col("window.end").cast("double") * 1000).alias("_wend"), "device", "t")).alias("value")
sink = found.select(F.col("device").alias("key"), value).writeStream.format("kafka").option("topic", target)
sink.option("kafka.bootstrap.servers", server).option("checkpointLocation", folder).start().awaitTermination()
"""


class Load:
    """Sends records to a source at a steady rate."""

    def __init__(self, server: str, source: str, rate: int) -> None:
        self._server, self._source, self._rate = server, source, rate
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _send(self) -> None:
        producer = Producer({"bootstrap.servers": self._server, "linger.ms": 5})
        began, number = time.perf_counter(), 0
        while not self._ends.is_set():
            pause = began + number / self._rate - time.perf_counter()
            if pause > 0.002 and self._ends.wait(pause):
                break
            producer.produce(self._source, _value(number), partition=number % PARTITIONS)
            producer.poll(0)
            number += 1
        producer.flush()


def _value(number: int) -> str:
    row = {"device": f"device {number % KEYS}", "temp": number % 400 / 10, "n": number % 1000, "sent": time.time_ns()}
    return json.dumps({**row, "x": "x" * 40})


class Figures:
    """The cost of a row in its steady state: cores and memory of the worker, cores of the broker, delays."""

    def __init__(self, broker: Barnabas, worker: int | None) -> None:
        """`worker` is the process that does the work, with its children; without it, the broker's driver."""
        assert broker.process is not None
        self._broker = Meter(broker.process.pid)
        self._is_driver = worker is None
        self._worker = Meter(processes(broker, "driver")[0].pid if worker is None else worker)

    def measured(self, delays: Callable[[], list[float]]) -> tuple[str, ...]:
        """The columns of a row."""
        at, of_broker, of_worker = time.perf_counter(), self._broker.cpu(), self._worker.cpu()
        found = sorted(delays())
        took = time.perf_counter() - at
        worker = (self._worker.cpu() - of_worker) / took
        both = (self._broker.cpu() - of_broker) / took
        memory = _memory(self._worker.pid)
        parts = [found[len(found) * part // 100] * 1000 for part in (50, 99)] if found else [float("nan")] * 2
        broker = both - worker if self._is_driver else both
        return (f"{worker:.2f}", f"{broker:.2f}", f"{memory:.2f}", *(f"{part:,.0f}" for part in parts))


def _memory(pid: int) -> float:
    """The GiB of a process and its descendants; shared pages are counted once."""
    top = psutil.Process(pid)
    total = 0
    for process in (top, *top.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total / 2**30


def _committed(server: str, topics: Sequence[str], partitions: int) -> Consumer:
    consumer = Consumer({
        "bootstrap.servers": server, "group.id": "bench", "isolation.level": "read_committed", "fetch.wait.max.ms": 10,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, number) for topic in topics for number in range(partitions)])
    return consumer


def of_windows(server: str, topics: Sequence[str], seconds: float) -> list[float]:
    """Seconds from the ends of windows to their results."""
    return _delays(_committed(server, topics, 1), seconds, _end)


def of_records(server: str, topics: Sequence[str], seconds: float) -> list[float]:
    """Seconds from the sends of records to their results."""
    return _delays(_committed(server, topics, PARTITIONS), seconds, lambda row: float(row["sent"] / 1e9))


def _delays(consumer: Consumer, seconds: float, since: Callable[[dict[str, Any]], float]) -> list[float]:
    ends, found = time.monotonic() + seconds, []
    while time.monotonic() < ends:
        for message in consumer.consume(1000, 0.05):
            if message.error() is None:
                found.append(time.time() - since(json.loads(message.value() or b"")))
    consumer.close()
    return found


def _end(row: dict[str, Any]) -> float:
    end = row["_wend"]
    return datetime.fromisoformat(end).timestamp() if isinstance(end, str) else float(end) / 1000


def _has_results(cluster: Cluster, topics: Sequence[str], partitions: int) -> None:
    places = [(topic, number) for topic in topics for number in range(partitions)]

    def all_have() -> bool:
        ends = list_offsets(cluster, places, LATEST)
        return all(any(ends[topic, number] for number in range(partitions)) for topic in topics)

    until(all_have, "there are results", PATIENT)


class Rows:
    """The rows, each over a source of its own."""

    def __init__(self, broker: Barnabas, cluster: Cluster, folder: Path, seconds: float) -> None:
        self._broker, self._cluster, self._folder, self._seconds = broker, cluster, folder, seconds
        self._made = 0

    def of(self, kind: str, count: int, rate: int) -> tuple[str, ...]:
        """Measure one row."""
        self._made += 1
        source = f"source-{self._made}"
        targets = [f"result-{self._made}-{number}" for number in range(count)]
        server, is_query = self._broker.address, kind in ("query", "script")
        create_topic(self._cluster, source, SCHEMA, partitions=PARTITIONS)
        with contextlib.ExitStack() as stack:
            worker = stack.enter_context(getattr(self, f"_{kind.replace(' ', '_').lower()}")(source, targets))
            stack.enter_context(Load(server, source, rate))
            _has_results(self._cluster, targets, PARTITIONS if is_query else 1)
            time.sleep(WARM_SECONDS)
            delays = of_records if is_query else of_windows
            figures = Figures(self._broker, worker).measured(lambda: delays(server, targets, self._seconds))
        for topic in (*targets, source):
            delete_topic(self._cluster, topic)
        return (kind, str(count), f"{rate:,}", *figures)

    def _make(self, topic: str, settings: dict[str, str], partitions: int) -> None:
        made = create_topic(self._cluster, topic, settings, partitions=partitions)
        check(made.error_code, topic, made.error_message)

    @contextlib.contextmanager
    def _stream(self, source: str, targets: Sequence[str]) -> Iterator[int | None]:
        for number, target in enumerate(targets):
            text = STREAMS[number % len(STREAMS)]
            length = WINDOW_SECONDS // (1 + number % 2)
            text = text.format(source=f"`{source}`", number=number, length=length)
            self._make(target, {"barnabas.stream": text}, 1)
        yield None

    @contextlib.contextmanager
    def _query(self, source: str, targets: Sequence[str]) -> Iterator[int | None]:
        for number, target in enumerate(targets):
            self._make(target, {"barnabas.query": QUERY.format(source=f"`{source}`", least=20 - number)}, -1)
        yield None

    @contextlib.contextmanager
    def _kafka_streams(self, source: str, targets: Sequence[str]) -> Iterator[int | None]:
        for target in targets:
            self._make(target, {}, 1)
        classes = self._folder / "classes"
        if not classes.exists():
            java = str(Path(__file__).with_name("WindowAverage.java"))
            compiler = ["java", "-m", "jdk.compiler/com.sun.tools.javac.Main"]
            jars = [str(jar) for folder in CLASS_PATH.split(os.pathsep) for jar in Path(folder).parent.glob("*.jar")]
            subprocess.run([*compiler, "-cp", os.pathsep.join(jars), "-d", str(classes), java], check=True)
        state = str(self._folder / f"state-{source}")
        options = ["-Xmx1g", "-XX:+UseSerialGC", "-Xlog:disable", "-cp", f"{classes}{os.pathsep}{CLASS_PATH}"]
        words = [self._broker.address, state, source, str(WINDOW_SECONDS), "0", *targets]
        with _process(["java", *options, "WindowAverage", *words]) as worker:
            yield worker
        self._forget("averages")

    @contextlib.contextmanager
    def _connector(self, source: str, targets: Sequence[str]) -> Iterator[int | None]:
        (target,) = targets
        self._make(target, {}, 1)
        folder = str(self._folder / f"checkpoint-{source}")
        words = [self._broker.address, folder, ",".join(connector()), source, target]
        with _process([sys.executable, "-c", _CONNECTOR, *words]) as worker:
            yield worker

    @contextlib.contextmanager
    def _script(self, source: str, targets: Sequence[str]) -> Iterator[int | None]:
        (target,) = targets
        self._make(target, {}, PARTITIONS)
        with _process([sys.executable, "-c", _SCRIPT, self._broker.address, source, target]) as worker:
            yield worker

    def _forget(self, group: str) -> None:
        """Make the next run of Kafka Streams start from the beginning."""
        for name in [topic.name or "" for topic in self._cluster.metadata(None)]:
            if name.startswith(f"{group}-"):
                delete_topic(self._cluster, name)


@contextlib.contextmanager
def _process(words: Sequence[str]) -> Iterator[int]:
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(words, stdout=said, stderr=said)
        try:
            yield process.pid
        except BaseException as error:
            said.seek(0)
            error.add_note(said.read().decode(errors="replace")[-4000:])
            raise
        finally:
            process.terminate()
            process.wait()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rates", default="10,100,1000,10000")
    parser.add_argument("--counts", default="1,20")
    parser.add_argument("--only", default="stream,query,Kafka Streams,connector,script", help="kinds of rows")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file, too")
    args = parser.parse_args()
    for tool in ("java", "ecosystem"):
        if reason := missing(tool):
            parser.exit(1, f"{reason}\n")
    settings = {
        "barnabas.streams.master": "local[2]", "barnabas.streams.sink.bytes.per.second": "0",
        "num.partitions": str(PARTITIONS),
    }  # fmt: skip
    columns = ("what", "how many", "records/s", "cores", "broker", "memory GiB", "delay p50 ms", "p99 ms")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        broker = Barnabas(Path(folder) / "data", dict(settings))
        with broker, Cluster(broker.address) as cluster:
            rows = Rows(broker, cluster, Path(folder), args.seconds)
            for kind in args.only.split(","):
                for count in map(int, args.counts.split(",")):
                    if count > 1 and kind in ("connector", "script"):
                        continue
                    for rate in map(int, args.rates.split(",")):
                        found.append(rows.of(kind, count, rate))
                        print(*found[-1], flush=True)
    print(table(columns, found))
    if args.json:
        Path(args.json).write_text(json.dumps([dict(zip(columns, row, strict=True)) for row in found], indent=1))


if __name__ == "__main__":
    main()
