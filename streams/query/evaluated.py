"""In the driver: evaluates a query over a few rows by Spark's own expressions, without a Spark job.

A Spark job costs some tens of milliseconds of CPU before it reads the first row. A few rows need no job: Spark has
planned the query as one projection over what the scan reads, so its compiled projection is called in the driver's JVM,
with Arrow going in and out.

Invariant: the results are those of the job. Spark has analysed, optimised and compiled the same expressions. Anything
that is not a plain projection (such as an operator's own function, which may take any time) is left to a job.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from barnabas.streams.doors import warn_shut
from barnabas.streams.query.analysis import Selected
from barnabas.streams.query.catalyst import SHUT, companion, jvm_of, kind_of, nodes, seq, spark_plan

_ROW = "row"
_NO_LIMIT = 2**31 - 1


class Evaluated:
    """A compiled query over rows with the columns of a frame."""

    def __init__(self, spark: SparkSession, projection: Any, columns: list[str], given: Any) -> None:
        """`projection` is a function of Spark's rows; `given` is the Spark schema of its results."""
        jvm = jvm_of(spark)
        self._arrow = companion(jvm.org.apache.spark.sql.execution.arrow, "ArrowConverters")
        self._threads = getattr(jvm, "java.lang.management.ManagementFactory").getThreadMXBean()
        self._projection, self._columns, self._given = projection, columns, given

    def cpu_seconds(self) -> float:
        """The CPU time that the JVM has spent on this thread's requests."""
        return float(self._threads.getCurrentThreadCpuTime()) / 1e9

    def results(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The records that result from these rows, as `streams.encode` expects them. Raises what Spark raises."""
        source = self._arrow.fromIPCStream(_written(rows.select(self._columns)))._1()
        try:
            written = self._arrow.toBatchWithSchemaIterator(
                source.map(self._projection), self._given, _NO_LIMIT, _NO_LIMIT, "UTC", True, False
            )
            table = pa.ipc.open_stream(written.next()).read_all()  # they are all one batch
        finally:
            source.close()
        offsets, found = (table.column(name).combine_chunks() for name in ("offset", _ROW))
        names = ["offset", *(field.name for field in found.type)]
        made = pa.RecordBatch.from_arrays([offsets, *found.flatten()], names=names)
        return made.filter(pc.is_valid(found))


def evaluated(spark: SparkSession, frame: DataFrame, chosen: Selected) -> Evaluated | None:
    """The chosen query over a frame; None if Spark needs a job for it, or differs from the known versions."""
    result = F.struct(
        chosen.timestamp.alias("timestamp"),
        chosen.key.alias("key"),
        chosen.value.alias("value"),
        frame["_headers"].alias("headers"),
    )
    rows = frame.select(frame["_offset"].alias("offset"), F.when(chosen.condition, result).alias(_ROW))
    try:
        plan = spark_plan(rows)
        if kind_of(plan) != "ProjectExec" or kind_of(plan.child()) != "MapInArrowExec":
            return None
        if any("UDF" in kind_of(node) for one in seq(plan.projectList()) for node in nodes(one)):
            return None
        expressions = jvm_of(spark).org.apache.spark.sql.catalyst.expressions
        projection = companion(expressions, "UnsafeProjection").create(plan.projectList(), plan.child().output())
        projection.initialize(0)
        return Evaluated(spark, projection, frame.columns, plan.schema())
    except SHUT as error:
        warn_shut("how Spark evaluates a projection", "every tick of such a query is a job", error)
        return None


def _written(rows: pa.RecordBatch) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write_batch(rows)
    written: bytes = out.getvalue().to_pybytes()
    return written
