"""A table of a database as its changes say it is: tables.py DATA_DIR TOPIC COLUMNS"""

import sys

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from barnabas.streams import register


def current(spark: SparkSession, data_dir: str, topic: str, columns: str) -> DataFrame:
    """The rows that are there now: for each key its newest change, unless that took the row away."""
    changes = (
        spark.read.format("wal")
        .options(topic=topic, format="json")
        .schema(f"after STRUCT<{_struct(columns)}>, op STRING, _key STRING, _offset BIGINT, _partition INT")
        .load(data_dir)
    )
    newest = Window.partitionBy("_key").orderBy(F.desc("_offset"))  # the changes of a key are in one partition
    return (
        changes.where("op IS NOT NULL")
        .withColumn("age", F.row_number().over(newest))
        .where("age = 1 AND op <> 'd'")
        .select("after.*")
    )


def _struct(columns: str) -> str:
    """`id BIGINT, item STRING` as the fields of a struct."""
    return ", ".join(":".join(column.split(None, 1)) for column in columns.split(","))


def main() -> None:
    data_dir, topic, columns = sys.argv[1:]
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    register(spark)
    rows = current(spark, data_dir, topic, columns).cache()
    print(f"{rows.count()} rows")
    rows.orderBy(rows.columns[0], ascending=False).show(20, truncate=False)


if __name__ == "__main__":
    main()
