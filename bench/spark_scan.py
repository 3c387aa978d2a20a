"""The `wal` data source in a local Spark: millions of rows a second at local[2], for three ways to read.

    python -m bench.spark_scan [--records 6000000] [--rounds 4] [--codec none] [--json FILE]

Records of about 180 bytes on the wire with a JSON value, in batches of 256 KiB and 2 partitions, are written to a
temporary directory without a broker. `offset` and `full rows` go to Spark's noop sink; `typed json` is parsed in the
worker and grouped by device. The best of the rounds is told: what others do on the machine only ever makes it slower.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from scripts.output import table
from storage.checkpoints import write_properties
from storage.config import LogConfig
from storage.io import Io
from storage.segment import FileCache
from storage.vnode import Vnode
from streams import register
from wire.batch import Record, build_batch
from wire.compression import Codec

PARTITIONS = 2
BATCH_BYTES = 256 << 10
DISTINCT_BATCHES = 16
SEGMENT_BYTES = 256 << 20


def fill(path: Path, records: int, codec: int) -> int:
    """Write at least `records` records to the topic `t`; gives how many, all parts of the same size."""
    write_properties(Io(), str(path / "meta.properties"), {"version": "1", "cluster.id": "bench", "node.id": "1"})
    each = BATCH_BYTES // 180
    batches = [_batch(number, each, codec) for number in range(DISTINCT_BATCHES)]
    count = -(-records // (each * PARTITIONS))
    for partition in range(PARTITIONS):
        io = Io()
        config = LogConfig(segment_bytes=SEGMENT_BYTES)
        vnode = Vnode(str(path / f"t-{partition}"), "t", partition, config, io=io, cache=FileCache(io, 16))
        vnode.create(bytes(range(16)))
        for number in range(count):
            vnode.append(bytearray(batches[number % DISTINCT_BATCHES]), now_ms=1_700_000_000_000)
        vnode.flush()
        vnode.close()
    return count * each * PARTITIONS


def _batch(number: int, each: int, codec: int) -> bytes:
    first = number * each
    records = [
        Record(b"%08d" % (n % 1000), b'{"device":"sensor-%06d","seq":%d,"temp":%.3f,"note":"%s"}'
               % (n % 1000, n, n % 400 / 10, b"x" * (100 - len(str(n)))), 1_700_000_000_000 + n)
        for n in range(first, first + each)
    ]  # fmt: skip
    return build_batch(records, compression=codec)


def session() -> SparkSession:
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
    }
    builder = SparkSession.builder.master("local[2]").appName("bench.spark_scan")
    for key, value in settings.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    register(made)
    return made


def ways(spark: SparkSession, path: Path) -> dict[str, Callable[[], object]]:
    """What is measured, by name."""

    def frame(schema: str = "", **options: str) -> DataFrame:
        reader = spark.read.format("wal").options(topic="t", **options)
        return (reader.schema(schema) if schema else reader).load(str(path))

    typed = frame("device string, seq bigint, temp double", format="json")
    return {
        "offset column": lambda: frame("offset bigint").write.format("noop").mode("overwrite").save(),
        "full rows": lambda: frame().write.format("noop").mode("overwrite").save(),
        "typed json, grouped": lambda: typed.groupBy("device").avg("temp").collect(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=6_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--codec", choices=[codec.name.lower() for codec in Codec], default="none")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file, too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        count = fill(path, args.records, Codec[args.codec.upper()])
        spark = session()
        best: dict[str, float] = {}
        for _ in range(args.rounds):
            for name, act in ways(spark, path).items():
                began = time.perf_counter()
                act()
                best[name] = min(best.get(name, float("inf")), time.perf_counter() - began)
        spark.stop()
    figures = [{"read": name, "rows": count, "M rows/s": round(count / took / 1e6, 2)} for name, took in best.items()]
    print(table(list(figures[0]), [list(figure.values()) for figure in figures]))
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
