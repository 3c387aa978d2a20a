"""Make an archive of Spark's classes, which halves Spark's start time: `python -m barnabas.streams.archive`.

The JVM runs a short session that does a little of what queries do. When it ends, it writes out the classes that it has
loaded (class data sharing, JEP 350). This takes about a minute and 170 MB. A different Java or Spark needs a new
archive.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from barnabas.streams.java import ARCHIVE, JavaError, check_java

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_SECONDS = 180


def main() -> int:
    """Make the archive, and report it. Without Java or Spark there is nothing to make."""
    try:
        check_java()
        import pyspark
    except (JavaError, ImportError) as error:
        print(f"no archive of Spark's classes: {error}")
        return 0
    print(f"making {ARCHIVE}, with which Spark {pyspark.__version__} starts in half the time ...", flush=True)
    made = ARCHIVE.with_suffix(".new")
    made.unlink(missing_ok=True)
    try:
        _run(f"-XX:ArchiveClassesAtExit={made} -Xlog:disable -XX:TieredStopAtLevel=1")
        shutil.move(made, ARCHIVE)
    except Exception as error:  # the archive only makes the start faster
        print(f"no archive of Spark's classes: {str(error).splitlines()[0]}")
    return 0


def _run(java_options: str) -> None:
    from barnabas.streams.query.catalyst import jvm_process
    from barnabas.streams.query.session import start_session

    spark = start_session("archive", "local[1]", java_options=java_options)
    process = jvm_process(spark)
    if process is None:
        raise RuntimeError("this Spark does not tell the process of its JVM")
    try:
        _work(spark)
        spark.stop()
    finally:
        process.stdin.close()  # the JVM exits, and writes its classes
        process.wait(_SECONDS)


def _work(spark: SparkSession) -> None:
    """Run a little of everything that queries, SELECTs in the terminal and exports do."""
    from pyspark.sql import functions as F
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(0)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
            yield 1, "a"

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "archived"

        def schema(self) -> str:
            return "n int, t string"

        def reader(self, schema: Any) -> Reader:
            return Reader()

    spark.dataSource.register(Source)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.read.format("archived").load().createOrReplaceTempView("archived")
    spark.sql("SELECT t, max(n), count(*) FROM archived WHERE n > 0 GROUP BY t ORDER BY t LIMIT 5").collect()
    rows = spark.range(0, 2, 1, 2).mapInArrow(same, "id bigint")
    whole = F.struct(F.to_json(F.struct("id")).cast("binary").alias("value"), F.col("id").alias("offset"))
    both = rows.select(F.inline(F.filter(F.array(F.when(rows.id > 0, whole), whole), lambda row: row.isNotNull())))
    one = rows.select(F.when(rows.id > 0, whole).alias("row")).where("row is not null").select("row.*")
    for made in (both, one):
        made.mapInArrow(same, "value binary, offset bigint").collect()
    spark.sparkContext.parallelize([1], 1).map(str).collect()


if __name__ == "__main__":
    sys.exit(main())
