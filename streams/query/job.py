"""One Spark job for all queries that read the same source with the same schema and have come equally far.

The plan is made once, and run again every tick: what changes from tick to tick goes to the tasks as a job property.
The scan is shared; every row goes through the SELECTs of all queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streams.query.analysis import ALL_TOPICS, Selected, over_pattern, select
from streams.query.definitions import Definition, Values
from streams.query.scan import Scan
from streams.query.sink import MALFORMED, MARK, REPORT, ROW, Output, Sink
from streams.query.source_rows import END, PARTS, UNREADABLE, arrow_schema, row_schema, value_columns
from streams.query.tick import PROPERTY, Tick
from streams.source.where import Condition, decidable

_ARROW_BATCH_BYTES = 4 << 20
_MIN_ARROW_ROWS, _MAX_ARROW_ROWS = 16, 4096


class Report(msgspec.Struct, frozen=True):
    """What a task of a job did for one query."""

    query: int
    task: int
    written: int
    dead: int
    next: int


class Job:
    """Definitions of one source, planned. Raises QueryError for a query that its source does not allow."""

    def __init__(self, spark: SparkSession, server: str, definitions: Sequence[Definition], tasks: int) -> None:
        first = definitions[0].plan
        queries = [over_pattern(definition.query)[0] for definition in definitions]
        source = first.source or ALL_TOPICS
        values = value_columns(first)
        everything = _frame(spark, row_schema(values), values, first.values, tasks)
        found = [select(spark, query, source, everything, values) for query in queries]
        names = set().union(*(one.names for one in found))
        parses = [bool(one.names & set(values.names)) for one in found]
        frame = _frame(
            spark, row_schema(values, names), values if any(parses) else StructType([]), first.values, tasks,
            [one.least for one in found],
        )  # fmt: skip
        chosen = [select(spark, query, source, frame, values) for query in queries]
        outputs = [
            Output(d.topic, p, d.on_error, d.max_batch_bytes, d.partitions if first.pattern else 0)
            for d, p in zip(definitions, parses, strict=True)
        ]
        #: What the SELECTs give, before it is written.
        self.rows = _rows(frame, chosen, parses)
        self._spark, self._reports = spark, self.rows.mapInArrow(Sink(server, outputs).__call__, REPORT)

    @staticmethod
    def check(spark: SparkSession, query: str, source: str, reading: Values) -> Selected:
        """What a query would give. Raises QueryError for one that cannot be."""
        values = value_columns(reading)
        return select(spark, query, source, _frame(spark, row_schema(values), values, reading, 1), values)

    def run(self, tick: Tick) -> list[Report]:
        """Run one tick. Raises what Spark raises when a task fails; what was written until then stays."""
        begin(self._spark, tick)
        _set_arrow_batches(self._spark, tick)
        return [Report(*row) for row in self._reports.collect()]


def _set_arrow_batches(spark: SparkSession, tick: Tick) -> None:
    """Have Spark make Arrow batches of so many rows that they are of some MiB."""
    rows = _ARROW_BATCH_BYTES * tick.records // max(tick.bytes, 1)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", max(_MIN_ARROW_ROWS, min(rows, _MAX_ARROW_ROWS)))


def begin(spark: SparkSession, tick: Tick) -> None:
    """Tell the tasks of the jobs that this thread starts from now on what to do."""
    spark.sparkContext.setLocalProperty(PROPERTY, tick.encode())


def _frame(
    spark: SparkSession, schema: StructType, values: StructType, reading: Values, tasks: int,
    least: Sequence[Sequence[Condition]] = ((),),
) -> DataFrame:  # fmt: skip
    """The rows of the source that a query may want, as they meet what it asks at `least`; a task for each partition."""
    target = arrow_schema(schema)
    kept = [decidable(one, target) for one in least]
    scan = Scan(target, arrow_schema(values), reading, kept if all(kept) else [])
    return spark.range(0, tasks, 1, tasks).mapInArrow(scan.__call__, schema)


def _rows(frame: DataFrame, chosen: Sequence[Selected], parses: Sequence[bool]) -> DataFrame:
    """The results of all queries, malformed records and the mark, in the order of the source's records."""
    malformed = frame[UNREADABLE].isNotNull() if any(parses) else F.lit(False)
    was = {part: frame[UNREADABLE][part] for part in ("key", "value", "timestamp", "headers", "reason")}
    special = F.when(frame[END], _row(-1, MARK)).when(malformed, _row(-1, MALFORMED, **was))
    cases = []
    for number, (one, typed) in enumerate(zip(chosen, parses, strict=True)):
        readable = ~frame[END] & ~malformed if typed else ~frame[END]
        row = _row(number, ROW, one.key, one.value, one.timestamp, frame["_headers"])
        cases.append((readable & one.condition, row))
    at = (frame["_partition"], frame["_offset"].alias("offset"))
    if len(cases) == 1:
        rows = frame.select(special.when(*cases[0]).alias("row"), *at).where("row is not null").select("row.*", *_AT)
    else:
        each = F.array(*(F.when(condition, row) for condition, row in cases), special)
        rows = frame.select(F.inline(F.filter(each, lambda row: row.isNotNull())), *at)
    return rows.select("query", "kind", "_partition", "offset", "key", "value", "timestamp", "headers", "reason")


_AT = ("_partition", "offset")


def _row(
    query: int, kind: int, key: Any = None, value: Any = None, timestamp: Any = None, headers: Any = None,
    reason: Any = None,
) -> Column:  # fmt: skip
    """A row for the sink; all kinds of rows have the same columns."""
    return F.struct(
        F.lit(query).alias("query"),
        F.lit(kind).alias("kind"),
        _or_null(key, "binary").alias("key"),
        _or_null(value, "binary").alias("value"),
        _or_null(timestamp, "timestamp").alias("timestamp"),
        _or_null(headers, PARTS["_headers"]).alias("headers"),
        _or_null(reason, "string").alias("reason"),
    )


def _or_null(column: Column | None, kind: str) -> Column:
    return (F.lit(None) if column is None else column).cast(kind)
