"""The backlog of `bench.streams` compared in one run with Kafka Streams and Spark's connector, on Apache Kafka.

    python -m bench.streams_peers [--records 4000000] [--json FILE]

All three write averages of a column, over windows of a minute for 1,000 keys, to a topic. They read the same records in
2 partitions; barnabas and Kafka Streams write exactly once, Spark's sink for Kafka at least once. The connector keeps
its state in two tasks, Kafka Streams in one task for each partition, barnabas in one task and, in a second row, in two
(PARALLELISM 2). There is one record every 10 ms of event time, so that a window of a key holds 6 (sparse), or one every
0.1 ms (dense). Time is from the start of the job until all records are read and committed. For Kafka Streams it starts
at RUNNING; the connector and barnabas run in a JVM that has already run the same job over 10,000 records.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.client.admin import create_topic
from barnabas.client.cluster import Cluster
from barnabas.wire.table import table
from bench.servers import BenchKafka
from bench.spark_kafka import connector
from bench.streams import PARTITIONS, SCHEMA, backlog, filled, make, of_backlog, wait
from compat_tests.broker_process import Barnabas
from compat_tests.ecosystem.jvm import CLASS_PATH
from compat_tests.tools import missing
from compat_tests.waiting import until

STEPS = {"sparse": 10_000, "dense": 100}  # microseconds of event time between two records
DEADLINE = 900
_CONNECTOR = """
import sys, time
from pyspark.sql import SparkSession, functions as F
server, folder, jars, *topics = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2").config("spark.driver.memory", "1g").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
def run(topic, number):
    rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", server).option("subscribe", topic)
    rows = rows.option("startingOffsets", "earliest").load()
    rows = rows.select("timestamp", F.from_json(F.col("value").cast("string"), "device STRING, temp DOUBLE").alias("v"))
    found = rows.withWatermark("timestamp", "1 second").groupBy(F.window("timestamp", "1 minute"), "v.device").agg(
        F.avg("v.temp").alias("t"))
    out = found.select(F.col("device").alias("key"), F.to_json(F.struct("window.end", "device", "t")).alias("value"))
    began = time.perf_counter()
    sink = out.writeStream.format("kafka").option("kafka.bootstrap.servers", server)
    sink = sink.option("topic", topic + "-connector").option("checkpointLocation", f"{folder}/{number}")
    sink.trigger(availableNow=True).start().awaitTermination()
    return time.perf_counter() - began
run(topics[0], 0)
for number, topic in enumerate(topics[1:], 1):
    print(topic, run(topic, number), flush=True)
"""


def kafka_streams(kafka: BenchKafka, folder: Path, source: str) -> float:
    """Seconds until Kafka Streams has read and committed all of a topic."""
    words = [str(Path(__file__).with_name("WindowAverage.java")), kafka.address, str(folder / f"state-{source}")]
    process = subprocess.Popen(
        [
            "java",
            "-Xmx1g",
            "-XX:+UseSerialGC",
            "-Xlog:disable",
            "-cp",
            CLASS_PATH,
            *words,
            source,
            "60",
            "1",
            f"{source}-averages",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.strip() == "RUNNING":
                break
        began = time.perf_counter()
        until(lambda: _lag(kafka.address, "averages", source) == 0, "Kafka Streams has read all", DEADLINE)
        return time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()
        _forget(kafka.address)


def _lag(address: str, group: str, source: str) -> int:
    """The lag of a group in its source and its repartition topic, without transaction markers."""
    admin = AdminClient({"bootstrap.servers": address})
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    places = {(place.topic, place.partition): place.offset for place in asked.result(30).topic_partitions or []}
    topics = [name for name in admin.list_topics(timeout=30).topics if name == source or name.endswith("-repartition")]
    consumer = Consumer({"bootstrap.servers": address, "group.id": "looks"})
    left = 0
    for topic in topics:
        for partition in range(PARTITIONS):
            end = consumer.get_watermark_offsets(TopicPartition(topic, partition), 30)[1]
            behind = end - places.get((topic, partition), 0)
            left += behind if behind > 2 else 0
    consumer.close()
    return left


def _forget(address: str) -> None:
    """Delete the topics and the group, so that the next run starts from the beginning."""
    admin = AdminClient({"bootstrap.servers": address})
    made = [name for name in admin.list_topics(timeout=30).topics if name.startswith("averages-")]
    for future in admin.delete_topics(made).values():
        future.result(30)
    until(lambda: _is_empty(admin), "the members have left", 90)
    for future in admin.delete_consumer_groups(["averages"]).values():
        future.result(30)


def _is_empty(admin: AdminClient) -> bool:
    return not admin.describe_consumer_groups(["averages"])["averages"].result(30).members


def peers(folder: Path, records: int) -> dict[str, dict[str, float]]:
    """Records a second by peer and kind of backlog."""
    found: dict[str, dict[str, float]] = {"Kafka Streams": {}, "Spark's connector": {}}
    kafka = BenchKafka(folder / "kafka", {"num.partitions": str(PARTITIONS)})
    kafka.start()
    try:
        sources = {kind: f"backlog-{kind}" for kind in STEPS}
        with Cluster(kafka.address) as cluster:
            for kind, source in [("warm", "warm"), *sources.items()]:
                kept = {"retention.ms": "-1"}
                create_topic(cluster, source, kept, partitions=PARTITIONS, replication_factor=1)
                create_topic(cluster, f"{source}-averages", kept, partitions=1, replication_factor=1)
                create_topic(cluster, f"{source}-connector", kept, partitions=1, replication_factor=1)
                filled(kafka.address, source, records if kind in STEPS else 10_000, STEPS.get(kind, 100))
        words = [kafka.address, str(folder), ",".join(connector()), "warm", *sources.values()]
        done = subprocess.run([sys.executable, "-c", _CONNECTOR, *words], stdout=subprocess.PIPE, text=True, check=True)
        for line in done.stdout.splitlines():
            source, seconds = line.split()
            found["Spark's connector"][source.removeprefix("backlog-")] = records / float(seconds)
        for kind, source in sources.items():
            found["Kafka Streams"][kind] = records / kafka_streams(kafka, folder, source)
    finally:
        kafka.stop()
    return found


def ours(folder: Path, records: int, tasks: int) -> dict[str, float]:
    """Records a second of barnabas by kind of backlog, with its state in `tasks` tasks."""
    settings = {"barnabas.streams.master": "local[2]", "barnabas.streams.sink.bytes.per.second": "0"}
    broker = Barnabas(folder / f"barnabas-{tasks}", {**settings, "num.partitions": str(PARTITIONS)})
    with broker, Cluster(broker.address) as cluster:
        create_topic(cluster, "warm", SCHEMA, partitions=PARTITIONS)
        filled(broker.address, "warm", 10_000, 100)
        make(cluster, "warm-averages", of_backlog("warm", tasks))
        wait(cluster, ["warm-averages"], lambda told: told.batch_ms > 0 and told.lag == 0)
        return {kind: backlog(broker, cluster, records, step, tasks)[1][2] for kind, step in STEPS.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file, too")
    args = parser.parse_args()
    for tool in ("java", "ecosystem"):
        if reason := missing(tool):
            parser.exit(1, f"{reason}\n")
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "barnabas": ours(Path(folder), args.records, 1),
            "barnabas, 2 tasks": ours(Path(folder), args.records, 2),
            **peers(Path(folder), args.records),
        }
    print(
        table(("records/s", *STEPS), [(name, *(f"{row[kind]:,.0f}" for kind in STEPS)) for name, row in found.items()])
    )
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
