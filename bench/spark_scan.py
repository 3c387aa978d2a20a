"""The `wal` data source in a local Spark: millions of rows a second at local[2], for three ways to read.

    python -m bench.spark_scan [--records 6000000] [--rounds 4] [--codec none] [--json FILE]

Records of about 180 bytes on the wire with a JSON value, in batches of 256 KiB and 2 partitions, are written to a
temporary directory without a broker. `offset` and `full rows` go to Spark's noop sink; `typed json` is parsed in the
worker and grouped by device. If its jars can be downloaded, Spark's own Kafka connector does the same for comparison,
with the same records in Apache Kafka; it parses with from_json. Each way has a JVM of its own, as code that a JVM has
compiled for another job makes it slower. The result is the best round: other work on the machine can only make a round
slower.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from barnabas.client.errors import ClientError
from barnabas.storage.checkpoints import write_properties
from barnabas.storage.config import LogConfig
from barnabas.storage.files import FileCache
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.streams import register
from barnabas.wire.batch import build_batch
from barnabas.wire.compression import CompressionType
from bench.readings import READING_BYTES, options, readings, show
from bench.servers import BenchKafka
from bench.spark_kafka import connector
from bench.spark_kafka import fill as fill_kafka
from compat_tests.apache_kafka import ApacheKafka
from compat_tests.tools import missing

PARTITIONS = 2
BATCH_BYTES = 256 << 10
DISTINCT_BATCHES = 16
SEGMENT_BYTES = 256 << 20


def fill(path: Path, records: int, codec: int) -> int:
    """Write at least `records` records to the topic `t`, the same number to each partition; returns the number."""
    write_properties(Io(), str(path / "meta.properties"), {"version": "1", "cluster.id": "bench", "node.id": "1"})
    batches, each, count = batches_of(records, codec)
    for partition in range(PARTITIONS):
        io = Io()
        config = LogConfig(segment_bytes=SEGMENT_BYTES)
        vnode = LocalVnode(str(path / f"t-{partition}"), "t", partition, config, io=io, cache=FileCache(io, 16))
        vnode.create(bytes(range(16)))
        for number in range(count):
            vnode.append(bytearray(batches[number % DISTINCT_BATCHES]), now_ms=1_700_000_000_000)
        vnode.flush()
        vnode.close()
    return count * each * PARTITIONS


def batches_of(records: int, codec: int) -> tuple[list[bytes], int, int]:
    """Different batches, the number of records in each, and the number of batches for each partition."""
    each = BATCH_BYTES // READING_BYTES
    batches = [build_batch(readings(number * each, each), compression=codec) for number in range(DISTINCT_BATCHES)]
    return batches, each, -(-records // (each * PARTITIONS))


def session(jars: Sequence[str] = ()) -> SparkSession:
    """A local Spark on two cores, for this process only."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        **({"spark.jars": ",".join(jars)} if jars else {}),
    }
    builder = SparkSession.builder.master("local[2]").appName("bench.spark_scan")
    for key, value in settings.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    register(made)
    return made


def ways(spark: SparkSession, path: Path) -> dict[str, Callable[[], object]]:
    """The measured functions, by name."""

    def frame(schema: str = "", **options: str) -> DataFrame:
        reader = spark.read.format("wal").options(topic="t", **options)
        return (reader.schema(schema) if schema else reader).load(str(path))

    typed = frame("device string, seq bigint, temp double", format="json")
    return {
        "offset column": lambda: frame(columns="offset").write.format("noop").mode("overwrite").save(),
        "full rows": lambda: frame().write.format("noop").mode("overwrite").save(),
        "typed json, grouped": lambda: typed.groupBy("device").avg("temp").collect(),
    }


def ways_of_kafka(spark: SparkSession, server: str) -> dict[str, Callable[[], object]]:
    """The same functions with Spark's Kafka connector."""

    def frame() -> DataFrame:
        options = {"kafka.bootstrap.servers": server, "subscribe": "t", "minPartitions": "16"}
        return spark.read.format("kafka").options(**options).load()

    schema = "device string, seq bigint, temp double"
    typed = frame().select(F.from_json(F.col("value").cast("string"), schema).alias("v")).select("v.*")
    return {
        "offset column": lambda: frame().select("offset").write.format("noop").mode("overwrite").save(),
        "full rows": lambda: frame().write.format("noop").mode("overwrite").save(),
        "typed json, grouped": lambda: typed.groupBy("device").avg("temp").collect(),
    }


WAYS = ("offset column", "full rows", "typed json, grouped")


def best_of(rounds: int, way: str, path: Path | None, server: str, jars: Sequence[str]) -> float:
    """The seconds of the fastest round of one way, over the logs of `path` or the Kafka at `server`."""
    spark = session(jars)
    try:
        act = (ways(spark, path) if path is not None else ways_of_kafka(spark, server))[way]
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            act()
            times.append(time.perf_counter() - began)
        return min(times)
    finally:
        spark.stop()


def start_kafka(folder: Path, records: int, codec: int) -> tuple[ApacheKafka | None, list[str]]:
    """Apache Kafka with the same records, and the connector's jars; if one is missing, neither, and a line says why."""
    try:
        jars = connector()
    except OSError as error:
        print(f"without Spark's Kafka connector, whose jars cannot be had: {error}", file=sys.stderr)
        return None, []
    if reason := missing("java"):
        print(f"without Apache Kafka: {reason}", file=sys.stderr)
        return None, []
    kafka = BenchKafka(folder, {"num.partitions": str(PARTITIONS)})
    kafka.start()
    try:
        batches, _, count = batches_of(records, codec)
        fill_kafka(kafka.address, "t", batches, count, PARTITIONS)
    except ClientError:
        kafka.kill()
        raise
    return kafka, jars


def main() -> None:
    """Measure and print."""
    parser = options(__doc__, records=6_000_000, rounds=4)
    parser.add_argument("--codec", choices=[codec.name.lower() for codec in CompressionType], default="none")
    args = parser.parse_args()
    codec = CompressionType[args.codec.upper()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        path.mkdir()
        count = fill(path, args.records, codec)
        kafka, jars = start_kafka(Path(folder) / "kafka", args.records, codec)
        server = kafka.address if kafka is not None else ""
        best: dict[tuple[str, str], float] = {}
        sources = [("wal", path), *([("kafka", None)] if kafka is not None else [])]
        try:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as alone:
                for way in WAYS:
                    for source, logs in sources:
                        best[source, way] = alone.submit(best_of, args.rounds, way, logs, server, jars).result()
                        print(f"{source}, {way}: {count / best[source, way] / 1e6:.2f} M rows/s", file=sys.stderr)
        finally:
            if kafka is not None:
                kafka.stop()
    figures: list[dict[str, object]] = [
        {"read": name, "source": source, "rows": count, "M rows/s": round(count / took / 1e6, 2)}
        for (source, name), took in best.items()
    ]
    show(figures, args.json)


if __name__ == "__main__":
    main()
