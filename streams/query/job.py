"""One Spark job for all queries that read the same source with the same schema, from the same offsets.

The plan is made once and run again every tick; what changes from tick to tick reaches the tasks as a job property. The
queries share one scan, and every row goes through the SELECTs of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from barnabas.streams.query.analysis import ALL_TOPICS, Selected, over_pattern, select
from barnabas.streams.query.catalyst import map_in_arrow
from barnabas.streams.query.definitions import Definition
from barnabas.streams.query.direct import direct_of, outputs_of
from barnabas.streams.query.errors import TooSlowError
from barnabas.streams.query.evaluated import Evaluated, evaluated
from barnabas.streams.query.facts import Facts
from barnabas.streams.query.pace import MAX_ROWS
from barnabas.streams.query.parts import END, PARTS, UNREADABLE
from barnabas.streams.query.room import heap_of, with_room
from barnabas.streams.query.scan import Scan
from barnabas.streams.query.sink import MALFORMED, MARK, REPORT, ROW, Report, Sink
from barnabas.streams.query.source_rows import arrow_schema, row_schema, value_columns
from barnabas.streams.query.tick import PROPERTY, Tick
from barnabas.streams.query.work import Watch, Worked, cpu_of
from barnabas.streams.source.where import decidable
from barnabas.wire.queries.plan import Values

_TAG = "barnabas-tick"


class Job:
    """Planned definitions of one source; `found` are their facts from `check`. Raises QueryError."""

    def __init__(
        self, spark: SparkSession, server: str, definitions: Sequence[Definition], found: Sequence[Facts], tasks: int
    ) -> None:
        simple = [one.simple for one in found if one.simple is not None]
        self._spark = spark
        self._bounds = [one.bound for one in found]
        self._heap = heap_of(spark)
        self.has_run = False
        #: The work of the last tick, if it took longer than it may work.
        self.worked: Worked | None = None
        if len(simple) == len(definitions):
            direct = direct_of(server, definitions, found, simple)
            self._reports = map_in_arrow(_numbers(spark, tasks), direct.__call__, REPORT)
        else:
            rows = Group(spark, definitions, found, tasks).rows()
            self._reports = map_in_arrow(rows, Sink(server, outputs_of(definitions, found)).__call__, REPORT)

    @staticmethod
    def check(spark: SparkSession, query: str, source: str, reading: Values) -> Facts:
        """A query's facts. Raises QueryError for an invalid query."""
        found, scan = selected(spark, query, source, reading)
        facts = found.facts(scan.values)
        if facts.simple is not None and not facts.simple.suits(scan.target):
            return facts._replace(simple=None)
        return facts

    def run(
        self, tick: Tick, timeout: float, most_rows: int = MAX_ROWS, held: Callable[[Worked], None] = lambda _: None
    ) -> list[Report]:
        """Run one tick, with at most `most_rows` rows in an Arrow batch.

        If it takes longer than `timeout` seconds without working so long, `held` is called in another thread. Raises
        what Spark raises if a task fails, and TooSlowError if one has worked for `timeout` seconds; what was written
        until then stays.
        """
        tick = with_room(tick, self._bounds, self._heap, most_rows)
        begin(self._spark, tick)
        self._spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", tick.rows)
        spark_context = self._spark.sparkContext
        watch = Watch(cpu_of(self._spark, _TAG), timeout, lambda: spark_context.cancelJobsWithTag(_TAG), held)
        spark_context.addJobTag(_TAG)  # the streams' jobs continue
        try:
            with watch:
                reports = [Report(*row) for row in self._reports.collect()]
        except Exception as error:
            if watch.why is not None:
                raise TooSlowError(watch.why, tick.bytes) from error
            raise
        finally:
            spark_context.removeJobTag(_TAG)
        self.worked = watch.worked
        self.has_run = True
        return reports


def selected(spark: SparkSession, query: str, source: str, reading: Values) -> tuple[Selected, Scan]:
    """A query over all columns of its source, and the scan for them. Raises QueryError."""
    values = value_columns(reading)
    schema = row_schema(values)
    scan = Scan(arrow_schema(schema), arrow_schema(values), reading)
    return select(spark, query, source, _frame(spark, scan, schema, 1), values), scan


class Group:
    """Queries over one source, and what they need from it."""

    def __init__(
        self, spark: SparkSession, definitions: Sequence[Definition], found: Sequence[Facts], tasks: int
    ) -> None:
        self._spark, self._found, self._tasks = spark, found, tasks
        self._reading = definitions[0].plan.values
        self._source = definitions[0].plan.source or ALL_TOPICS
        self._queries = [over_pattern(definition.query)[0] for definition in definitions]
        self._columns = value_columns(self._reading)
        names = set().union(*(one.names for one in found))
        self._schema = row_schema(self._columns, names)
        self._parses = [one.parses for one in found]

    def scan(self) -> Scan:
        """The scan for the columns that the queries need."""
        values = self._columns if any(self._parses) else StructType([])
        return Scan(arrow_schema(self._schema), arrow_schema(values), self._reading)

    def rows(self) -> DataFrame:
        """The results of all queries, malformed records and the mark, computed by Spark."""
        scan = self.scan()
        kept = [decidable(one.least, scan.target) for one in self._found]
        scan = msgspec.structs.replace(scan, kept=kept if all(kept) else [])
        frame = self.frame(scan)
        return _rows(frame, self.chosen(frame), self._parses)

    def frame(self, scan: Scan | None = None) -> DataFrame:
        """The rows of `scan`, or of the group's scan."""
        return _frame(self._spark, scan or self.scan(), self._schema, self._tasks)

    def chosen(self, frame: DataFrame) -> list[Selected]:
        """The queries over a frame."""
        return [select(self._spark, query, self._source, frame, self._columns) for query in self._queries]


def evaluated_alone(spark: SparkSession, definition: Definition, found: Facts) -> Evaluated | None:
    """An evaluator for a query without a job, over rows with the needed columns; None if only a job can do it.

    It has evaluated one row, so that the first records need not wait for compilers.
    """
    group = Group(spark, [definition], [found], 1)
    frame = group.frame()
    (chosen,) = group.chosen(frame)
    made = evaluated(spark, frame, chosen)
    if made is not None:
        target = group.scan().target
        made.results(pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in target], schema=target))
    return made


def begin(spark: SparkSession, tick: Tick) -> None:
    """Tell the tasks of jobs that this thread starts from now on what to do."""
    spark.sparkContext.setLocalProperty(PROPERTY, tick.encode())


def _numbers(spark: SparkSession, tasks: int) -> DataFrame:
    """The tasks' numbers, with one task for each."""
    return spark.range(0, tasks, 1, tasks)


def _frame(spark: SparkSession, scan: Scan, schema: StructType, tasks: int) -> DataFrame:
    """The scan's rows, with one task for each partition."""
    return map_in_arrow(_numbers(spark, tasks), scan.__call__, schema)


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
    query: int,
    kind: int,
    key: Any = None,
    value: Any = None,
    timestamp: Any = None,
    headers: Any = None,
    reason: Any = None,
) -> Column:
    """A row for the sink. All kinds of rows have the same columns."""
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
