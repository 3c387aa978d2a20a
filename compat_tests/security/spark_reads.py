"""Spark's own Kafka connector reads a topic, and each value is printed on a line.

python -m compat_tests.security.spark_reads ADDRESS TOPIC CLIENT.PROPERTIES
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from barnabas.wire.properties import parse_properties
from bench.spark_kafka import connector


def main(address: str, topic: str, config: str) -> None:
    security = {f"kafka.{key}": value for key, value in parse_properties(Path(config).read_text()).items()}
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = (
        builder.config("spark.jars", ",".join(connector()))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    options = {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest", **security}
    for row in spark.read.format("kafka").options(**options).load().selectExpr("CAST(value AS STRING)").collect():
        print(row[0])
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
