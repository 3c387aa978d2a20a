"""Spark and Arrow over the logs of a data directory: record decoder, reading layer, and the `wal` data source.

`register(spark)` makes `spark.read.format("wal")` and `spark.readStream.format("wal")` known to a session. Without
Spark, `streams.wal` reads the same records as Arrow batches.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from barnabas.wire.text import SPARK_REMEDY

if find_spec("pyarrow") is None:
    raise ImportError(f"streams needs pyarrow and pyspark: {SPARK_REMEDY}", name="pyarrow")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the `wal` data source known to a session. From then on, an uncaught error of it is shown as one line.

    Raises ImportError, in one line, without pyspark, and WalError if the workers' Python cannot run it.
    """
    try:
        from barnabas.streams.source.source import WalDataSource
        from barnabas.streams.source.workers import check_workers
        from barnabas.streams.uncaught import tell_in_one_line
    except ModuleNotFoundError as error:
        raise ImportError(f"the wal data source needs {error.name}: {SPARK_REMEDY}", name=error.name) from None
    tell_in_one_line()
    check_workers(spark)
    spark.dataSource.register(WalDataSource)
    # Filters narrow what is read and passed to the JVM. Spark wants this to be enabled explicitly.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


__all__ = ["register"]
