"""From a stream's text to a plan of Spark's: over a streaming frame it runs, over an empty one it is a check.

    source -> inputs of the aggregates -> watermark -> window -> aggregates by window and key -> results

The inputs and the results are SELECTs as those of query topics, and pass through the same allow-list (decision 12); the
aggregates are called here. Invariant: whatever a client writes, the state of a window and key has a few bytes, or those
of a record, for each aggregate.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, TimestampType

from barnabas.streams.query.analysis import Resolved, Selected, resolve, selected
from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.pushdown import Least
from barnabas.streams.query.source_rows import PARTS, value_columns
from barnabas.streams.source.names import CORRUPT
from barnabas.streams.windows.stages import DURATION, END, START, WINDOWS, Call, Stages, quoted, stages_of
from barnabas.wire.queries.plan import Values
from barnabas.wire.streams.clauses import RECORD_TIME, Clauses, Interval, parse_stream
from barnabas.wire.streams.tokens import SyntaxProblem

#: A column of the source that is null but in marks: a mark moves the watermark, and is no record.
CLOSE = "__close"
#: What is counted of each batch: records, and those without a time, too far ahead, or with a value that does not fit.
OBSERVED = "barnabas"
RECORDS, NO_TIME, AHEAD, MALFORMED = "records", "no_time", "ahead", "malformed"
_TIME = "__event_time"
# Names of relations are the session's: what one thread looks at must not be another one's.
_analysis = threading.Lock()
_ALWAYS = ("_timestamp", "_partition", "_offset")


class Planned(NamedTuple):
    """A stream over a frame: its results as key, value and timestamp, and what their values are."""

    results: DataFrame
    value_format: str
    value_schema: str
    needed: frozenset[str]  # the source's columns


def parsed(text: str) -> tuple[Clauses, Stages]:
    """A stream's text as clauses and stages. Raises QueryError, with the place."""
    try:
        clauses = parse_stream(text)
        return clauses, stages_of(clauses)
    except SyntaxProblem as error:
        raise QueryError(str(error)) from None


def source_schema(values: Values, needed: Collection[str] | None = None) -> StructType:
    """The columns that a stream may name of its source, or those of them that it needs, and the marks'.

    A topic with a schema has its columns, and the parts of records but the value. Raises QueryError for a schema that
    does not parse.
    """
    typed = value_columns(values)
    fields = [field for field in typed.fields if needed is None or field.name in needed]
    names = [name for name in PARTS if name in _ALWAYS or (name in needed if needed is not None else _has(typed, name))]
    found = StructType([*fields, *_columns({name: PARTS[name] for name in names})])
    if fields:
        found = found.add(CORRUPT, "string")
    return found.add(StructField(CLOSE, TimestampType()))


def _has(typed: StructType, part: str) -> bool:
    return not typed.names or part != "_value"


def _columns(kinds: Mapping[str, str]) -> list[StructField]:
    found = StructType.fromDDL(", ".join(f"{name} {kind}" for name, kind in kinds.items()))
    assert isinstance(found, StructType)
    return found.fields


def check(spark: SparkSession, clauses: Clauses, stages: Stages, values: Values) -> Planned:
    """What a stream over such values would give. Raises QueryError for one that cannot be."""
    return planned(spark, clauses, stages, spark.createDataFrame([], source_schema(values)), values)


def planned(spark: SparkSession, clauses: Clauses, stages: Stages, frame: DataFrame, values: Values) -> Planned:
    """The stream over `frame`, whose columns are those of `source_schema`. Raises QueryError."""
    with _analysis:
        return _planned(spark, clauses, stages, frame, values)


def _planned(spark: SparkSession, clauses: Clauses, stages: Stages, frame: DataFrame, values: Values) -> Planned:
    inputs = resolve(spark, stages.inputs, clauses.source, frame, value_columns(values))
    _check_time(clauses, inputs)
    rows = _windowed(clauses, _inputs(clauses, inputs, frame))
    keys = [F.col(quoted(name)) for name in stages.keys]
    # Spark takes no session without a key; this one is no constant, which it would leave out.
    grouped = rows.groupBy("__w", *(keys or [F.col("__one")]))
    made = grouped.agg(F.count(F.lit(1)).alias("__count"), *(_aggregate(call) for call in stages.calls))
    start, end = F.col("__w.start"), F.col("__w.end")
    windows = made.select(
        start.alias(START),
        end.alias(END),
        (F.unix_millis(end) - F.unix_millis(start)).alias(DURATION),
        *keys,
        *(F.col(call.column) for call in stages.calls),
        _key(stages.keys).alias("_key"),
        start.alias("_timestamp"),
        F.lit(None).cast(PARTS["_headers"]).alias("_headers"),
    )
    found = _outputs(spark, stages, windows)
    results = windows.where(found.condition).select(
        found.key.alias("key"), found.value.alias("value"), found.timestamp.alias("timestamp")
    )
    return Planned(results, found.value_format, found.value_schema, frozenset(inputs.needed))


def _inputs(clauses: Clauses, found: Resolved, frame: DataFrame) -> DataFrame:
    """The aggregates' inputs, what is grouped by, and the event time with its watermark."""
    malformed = F.col(CORRUPT).isNotNull() if CORRUPT in frame.columns else F.lit(False)
    chosen = [column.alias(name) for name, column, _ in found.chosen]
    rows = frame.select(
        *chosen,
        F.coalesce(found.condition, F.lit(False)).alias("__wanted"),
        malformed.alias("__malformed"),
        F.col(CLOSE),
        F.col("_timestamp").alias("__at"),
        F.col("_partition").alias("__partition"),
        F.col("_offset").alias("__offset"),
        (F.col("_partition") * 0).alias("__one"),
    )
    record = F.col(CLOSE).isNull()
    no_time = record & ~F.col("__malformed") & F.col("__time").isNull()
    ahead = F.lit(False)
    if clauses.time != RECORD_TIME:  # the broker bounds a record's own time
        limit = F.unix_millis(F.col("__at")) + F.lit(clauses.max_ahead_ms)
        ahead = record & F.coalesce(F.unix_millis(F.col("__time")) > limit, F.col("__time").isNotNull())
    rows = rows.withColumns({"__no_time": no_time, "__ahead": ahead})
    rows = rows.observe(
        OBSERVED,
        F.count_if(record).alias(RECORDS),
        F.count_if(F.col("__no_time")).alias(NO_TIME),
        F.count_if(F.col("__ahead")).alias(AHEAD),
        F.count_if(F.col("__malformed")).alias(MALFORMED),
    )
    taken = record & ~F.col("__malformed") & ~F.col("__ahead")
    rows = rows.withColumns(
        {
            _TIME: F.when(record, F.when(taken, F.col("__time"))).otherwise(F.col(CLOSE)),
            "__kept": taken & F.col("__wanted"),
        }
    )
    rows = rows.withWatermark(_TIME, f"{clauses.watermark_ms} milliseconds")
    # Marks and what WHERE leaves out move the watermark: a condition on the time is not moved below it by Spark.
    return rows.where(F.col("__kept") | F.col(_TIME).isNull())


def _check_time(clauses: Clauses, found: Resolved) -> None:
    kind = next(expression.dataType().simpleString() for name, _, expression in found.chosen if name == "__time")
    if kind != "timestamp":
        raise QueryError(f"the event time {clauses.time} is a {kind}: it must be a TIMESTAMP column")


def _windowed(clauses: Clauses, rows: DataFrame) -> DataFrame:
    window = clauses.window
    if isinstance(window, Interval):
        step, offset = f"{window.sliding_ms} milliseconds", f"{window.offset_ms} milliseconds"
        return rows.withColumn("__w", F.window(_TIME, f"{window.length_ms} milliseconds", step, offset))
    return rows.withColumn("__w", F.session_window(_TIME, f"{window.gap_ms} milliseconds"))


def _key(names: tuple[str, ...]) -> Column:
    """The default key of a result: what is grouped by, as text; of several columns a JSON object."""
    if not names:
        return F.lit(None).cast("string")
    if len(names) == 1:
        return F.col(quoted(names[0])).cast("string")
    return F.to_json(F.struct(*(F.col(quoted(name)) for name in names)), {"ignoreNullFields": "false"})


def _outputs(spark: SparkSession, stages: Stages, windows: DataFrame) -> Selected:
    """The results' columns. Raises QueryError."""
    known = [START, END, DURATION, *stages.keys]
    values = StructType([field for field in windows.schema.fields if field.name in known])
    try:
        found = resolve(spark, stages.outputs, WINDOWS, windows, values)
    except QueryError as error:
        text = str(error)
        if text.startswith("there is no column"):
            text = f"{text.split(':')[0]} in a window: it has {', '.join(known)}, and aggregates of other columns"
        raise QueryError(text) from None
    return selected(found, windows, values, Least((), False))


# --- aggregates -------------------------------------------------------------------------------------------------------


def _aggregate(call: Call) -> Column:
    inputs = [F.col(name) for name in call.inputs]
    function: Callable[..., Column] = _CALLS.get(call.function) or getattr(F, call.function)
    return function(*inputs, *(F.lit(one) for one in call.literals)).alias(call.column)


def _place(value: Column) -> Column:
    """Where a record stands, if it has a value: two records of one time have an order, too."""
    return F.when(value.isNotNull(), F.struct(_TIME, "__partition", "__offset"))


_CALLS: dict[str, Callable[..., Any]] = {
    "mean": F.avg,
    "std": F.stddev,
    "variance": F.var_samp,
    "every": F.bool_and,
    "any": F.bool_or,
    "some": F.bool_or,
    "approx_percentile": F.percentile_approx,
    "first": lambda value: F.min_by(value, _place(value)),
    "last": lambda value: F.max_by(value, _place(value)),
    "spread": lambda value: F.max(value) - F.min(value),
}


def check_fits(topic: str, have: str, gives: str) -> None:
    """Raises QueryError where a topic has other columns than a stream gives."""
    if have and _kinds(have) != _kinds(gives):
        raise QueryError(f"{topic} has the columns {have}, and the stream gives {gives}: use another topic")


def _kinds(ddl: str) -> dict[str, str]:
    try:
        found = StructType.fromDDL(ddl)
    except Exception:
        return {"": ddl}
    return {field.name: field.dataType.simpleString() for field in found} if isinstance(found, StructType) else {}
