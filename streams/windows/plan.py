"""From the texts of streams to one Spark plan: over a streaming frame it runs, over an empty one it is a check.

    source -> watermark -> a row for each stream that wants the record -> a row for each of its windows
           -> aggregates by stream, window and key -> each stream's results

The inputs of a stream's aggregates and its results are SELECTs like those of query topics, and pass through the same
allow-list (decision 12); the aggregates themselves are called here. Invariants: whatever a client writes, the state of
a window and key is a few bytes, or the size of a record, for each aggregate; and a stream's results do not depend on
the other streams that share its plan (decision 31).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, TimestampType

from barnabas.streams.encode.times import OBJECT
from barnabas.streams.query.analysis import Selected, resolve, selected
from barnabas.streams.query.catalyst import column, empty_frame, jvm_of, projected
from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.parts import PARTS
from barnabas.streams.query.pushdown import Least
from barnabas.streams.query.source_rows import value_columns
from barnabas.streams.source.names import CORRUPT
from barnabas.streams.windows.fill import FOLLOWING, check_values, fill_value, filled, following, prior
from barnabas.streams.windows.join_plan import with_other
from barnabas.streams.windows.key_texts import key_text, key_value
from barnabas.streams.windows.others import OTHER, other_schema
from barnabas.streams.windows.panes import STANDS_FOR
from barnabas.streams.windows.reading import Reading, Uses, carried, reading_of, uses_of
from barnabas.streams.windows.row_plan import CLOSED, closed_rows, windows_of
from barnabas.streams.windows.row_windows import ENDS, STARTS
from barnabas.streams.windows.slots import Input, Needs, Slot, aggregate, needs_of, places, slots_for
from barnabas.streams.windows.stages import DURATION, END, MARK, START, WINDOWS, Stages, quoted, stages_of
from barnabas.streams.windows.watched import CLOCK, CLOSE, TIME, Looked, is_kept, watched
from barnabas.wire.queries.plan import Values
from barnabas.wire.streams.clauses import Clauses, parse_stream
from barnabas.wire.streams.tokens import SyntaxProblem, problem
from barnabas.wire.streams.windows import EventWindow, Interval, RowWindow, Session, StateWindow

_LENGTHS = ("__length", "__step", "__offset_us")
#: The allowed types of a state. Equal numbers with fractions may look different, so they are not included.
_STATES = frozenset(("tinyint", "smallint", "int", "bigint", "string", "boolean", "date", "timestamp"))
#: The metadata by which Spark recognizes a column with a watermark.
_WATERMARK = "spark.watermarkDelayMs"
# Relations' names belong to the session: one thread's must not be mistaken for another's.
_analysis = threading.Lock()
_ALWAYS = ("_timestamp", "_partition", "_offset")


_RESULT, _WANTED = ("stream", "key", "value", "timestamp"), "wanted"


class Planned(NamedTuple):
    """A planned stream: its results over no rows, the form of their values, and the slots that it needs."""

    results: DataFrame
    value_format: str
    value_schema: str
    slots: Counter[Slot]


class Member(NamedTuple):
    """One of the streams that share a plan: its number there, and the offsets before which it takes no record."""

    number: int
    clauses: Clauses
    stages: Stages
    starts: tuple[int, ...] = ()


class MemberError(QueryError):
    """One of the streams that share a plan, the one with this number, is not possible."""

    def __init__(self, number: int, error: str) -> None:
        super().__init__(error)
        self.number = number


def parsed(text: str) -> tuple[Clauses, Stages]:
    """A stream's text as clauses and stages. Raises QueryError, with the position."""
    try:
        clauses = parse_stream(text)
        return clauses, stages_of(clauses)
    except SyntaxProblem as error:
        raise QueryError(str(error)) from None


def period_of(clauses: Clauses) -> Interval | None:
    """The period of windows that follow the clock."""
    return clauses.window if clauses.by_clock and isinstance(clauses.window, Interval) else None


def source_schema(values: Values, joined: Values | None = None, *, by_clock: bool = False) -> StructType:
    """The columns that a stream may name: the source's, the mark's, the clock's, and the other topic's.

    A topic with a schema has its columns, and the parts of records without the value. All are read, whatever a stream
    names: whether a record fits its topic's schema must not depend on the reader. Raises QueryError for a schema that
    does not parse.
    """
    typed = value_columns(values)
    names = [name for name in PARTS if name in _ALWAYS or not typed.names or name != "_value"]
    found = StructType([*typed.fields, *_columns({name: PARTS[name] for name in names})])
    if typed.fields:
        found = found.add(CORRUPT, "string")
    found = found.add(StructField(CLOSE, TimestampType()))
    found = found.add(StructField(CLOCK, TimestampType())) if by_clock else found
    return found if joined is None else found.add(StructField(OTHER, other_schema(value_columns(joined))))


def _columns(kinds: Mapping[str, str]) -> list[StructField]:
    found = StructType.fromDDL(", ".join(f"{name} {kind}" for name, kind in kinds.items()))
    assert isinstance(found, StructType)
    return found.fields


def check(
    spark: SparkSession, clauses: Clauses, stages: Stages, values: Values, joined: Values | None = None
) -> Planned:
    """The results of a stream over such values; `joined` are those of the topic that its source is joined with.

    Raises QueryError if the stream is not possible.
    """
    frame = empty_frame(spark, source_schema(values, joined, by_clock=clauses.by_clock))
    with _analysis:
        frame = with_other(frame, clauses)
        found = _wanted(spark, Member(0, clauses, stages), frame, values)
        slots = slots_for(found.needs.slots)
        outputs, results = _planned(spark, [found], slots, frame)
    return Planned(results, outputs[0].value_format, outputs[0].value_schema, found.needs.slots)


def reading(spark: SparkSession, members: Sequence[Member], slots: Sequence[Slot], values: Values) -> Reading | None:
    """What a query of these streams reads; None means all columns, record by record. Raises QueryError."""
    clauses = members[0].clauses
    if clauses.join is not None:
        return None
    frame = empty_frame(spark, source_schema(values, by_clock=clauses.by_clock))
    with _analysis:
        wanted = [_wanted(spark, member, frame, values) for member in members]
    each = [(one.member.clauses, one.member.starts, one.uses, one.needs) for one in wanted]
    return reading_of(each, slots, frame.schema, (CLOSE, CLOCK))


def results_of(batch: DataFrame) -> DataFrame:
    """The results in a batch of `planned`.

    A condition there would not work: Spark would apply it to the records, like one on grouping columns, and so let pass
    what is already in the state.
    """
    return batch.where(_WANTED).select(*_RESULT)


def planned(
    spark: SparkSession, members: Sequence[Member], slots: Sequence[Slot], frame: DataFrame, values: Values
) -> Running:
    """The windows of streams over `frame`, which has the columns of `source_schema`.

    Results have the stream's number, key, value and timestamp. The streams share the kind of window, the event time,
    the watermark, the limit for future times, and the join. Raises QueryError.
    """
    with _analysis:
        frame = with_other(frame, members[0].clauses)
        wanted = [_wanted(spark, member, frame, values) for member in members]
        window = members[0].clauses.window
        most, fill = members[0].clauses.max_state_rows, members[0].clauses.fill
        if fill is not None:
            assert isinstance(window, Interval)
            step_us = window.sliding_ms * 1000
            made = _made(slots, _windowed(wanted, _rows(wanted, slots, frame)))

            def with_filled(batch: DataFrame) -> DataFrame:
                with _analysis:
                    return results_of(_told(batch.sparkSession, wanted, slots, filled(batch, made.schema, step_us))[1])

            return Running(following(made, step_us, most), with_filled)
        if not isinstance(window, RowWindow):
            return Running(_planned(spark, wanted, slots, frame)[1], results_of)
        names = [name for name, _ in _all_inputs(slots)]
        rows = closed_rows(_rows(wanted, slots, frame), TIME, names, window, most)

    def results(batch: DataFrame) -> DataFrame:
        with _analysis:
            made = _made(slots, windows_of(batch, _all_inputs(slots)))
            return results_of(_told(batch.sparkSession, wanted, slots, made)[1])

    return Running(rows, results)


class Logged:
    """Streams over records that are not streamed; `frame` has the columns of `source_schema`. Raises QueryError."""

    def __init__(
        self, spark: SparkSession, members: Sequence[Member], slots: Sequence[Slot], frame: DataFrame, values: Values
    ) -> None:
        self._spark, self._slots = spark, slots
        with _analysis:
            self._wanted = [_wanted(spark, member, frame, values) for member in members]
            #: A row for each record, stream and window, with the window's start in microseconds as `__start`.
            self.windows = _windowed(self._wanted, _rows(self._wanted, slots, frame))

    def results(self, windows: DataFrame) -> DataFrame:
        """The results of some of its windows."""
        with _analysis:
            return results_of(_told(self._spark, self._wanted, self._slots, _made(self._slots, windows))[1])


class Running(NamedTuple):
    """Streams over a streaming frame: the rows in each batch of the query, and their results."""

    rows: DataFrame
    results_of: Callable[[DataFrame], DataFrame]


class _Wanted(NamedTuple):
    """What a stream needs from a record.

    That is whether it takes the record, its keys with their types, its slots' inputs, and the record's role in a window
    that records open and close.
    """

    member: Member
    condition: Column
    keys: tuple[tuple[str, Column, str], ...]
    needs: Needs
    time: Column
    mark: Column
    uses: Uses


def _wanted(spark: SparkSession, member: Member, frame: DataFrame, values: Values) -> _Wanted:
    clauses, stages, join = member.clauses, member.stages, member.clauses.join
    known = value_columns(values)
    if join is not None:
        known = StructType([*known.fields, frame.schema[join.name]])
    try:
        found = resolve(spark, stages.inputs, clauses.source, frame, known)
    except QueryError as error:
        raise MemberError(member.number, str(error)) from None
    columns = {name: (column, str(e.dataType().simpleString())) for name, column, e in found.chosen}
    time, kind = (F.col(CLOCK), "timestamp") if clauses.by_clock else columns["__time"]
    if kind != "timestamp":
        raise MemberError(member.number, f"the event time {clauses.time} is a {kind}: it must be a TIMESTAMP column")
    condition = F.coalesce(found.condition, F.lit(False))
    if join is not None and not join.is_left:
        condition = condition & F.col(quoted(join.name)).isNotNull()
    if member.starts:
        starts = F.array(*(F.lit(start).cast("bigint") for start in member.starts))
        first = F.get(starts, F.col("_partition"))  # null for a partition that was added to the source later
        condition = condition & F.coalesce(F.col("_offset") >= first, F.lit(True))
    keys = tuple((name, *columns[name]) for name in stages.keys)
    marks = [columns[f"{MARK}{number}"] for number in range(len(clauses.marks))]
    mark = F.lit(None).cast("string")
    if isinstance(clauses.window, StateWindow):
        mark = _state(member, *marks[0])
    elif isinstance(clauses.window, EventWindow):
        mark = F.concat(*(_event(member, number, *each) for number, each in enumerate(marks)))
    uses, needs = uses_of(found, stages.keys, frame.columns), needs_of(stages.calls, columns)
    if STANDS_FOR in frame.columns:
        needs = carried(needs, uses, frame.schema)
    return _Wanted(member, condition, keys, needs, time, mark, uses)


def _state(member: Member, column: Column, kind: str) -> Column:
    """A state as text. Raises MemberError for values whose equality is not certain."""
    if kind not in _STATES and not kind.startswith("decimal"):
        what = f"STATE_WINDOW is over whole numbers, texts, booleans, dates and times, and this is a {kind}"
        raise MemberError(member.number, str(problem(member.clauses.text, member.clauses.marks[0][0].start, what)))
    return key_text(column, kind)


def _event(member: Member, number: int, column: Column, kind: str) -> Column:
    """Whether a record begins or ends an event, as text. Raises MemberError if it is not a condition."""
    if kind != "boolean":
        what = f"expected a condition, and this is a {kind}"
        raise MemberError(member.number, str(problem(member.clauses.text, member.clauses.marks[number][0].start, what)))
    return F.when(column, F.lit((STARTS, ENDS)[number])).otherwise(F.lit(""))


def _planned(
    spark: SparkSession, wanted: Sequence[_Wanted], slots: Sequence[Slot], frame: DataFrame
) -> tuple[list[Selected], DataFrame]:
    """The results over a frame; over an empty one if they pass through an operator of ours."""
    clauses, rows = wanted[0].member.clauses, _rows(wanted, slots, frame)
    if isinstance(clauses.window, RowWindow):
        made = _made(slots, windows_of(empty_frame(spark, CLOSED), _all_inputs(slots)))
    else:
        made = _made(slots, _windowed(wanted, rows))
    if clauses.fill is not None:
        made = filled(empty_frame(spark, FOLLOWING), made.schema, 1)
    return _told(spark, wanted, slots, made)


def _made(slots: Sequence[Slot], rows: DataFrame) -> DataFrame:
    """The windows' slots, computed from their records."""
    inputs = [[F.col(name) for name, _ in _inputs_of(number, slot)] for number, slot in enumerate(slots)]
    aggregates = [aggregate(slot, inputs[number]).alias(f"a{number}") for number, slot in enumerate(slots)]
    return rows.groupBy("__stream", "__w", "__keys").agg(*aggregates)


def _told(
    spark: SparkSession, wanted: Sequence[_Wanted], slots: Sequence[Slot], made: DataFrame
) -> tuple[list[Selected], DataFrame]:
    """The results of windows."""
    found = [_results(spark, each, slots, made) for each in wanted]
    return [each.outputs for each in found], _together(spark, found, made)


# --- records to windows -----------------------------------------------------------------------------------------------


def _all_inputs(slots: Sequence[Slot]) -> list[tuple[str, str]]:
    """The columns of all slots' inputs, with their types."""
    return [each for number, slot in enumerate(slots) for each in _inputs_of(number, slot)]


def _inputs_of(number: int, slot: Slot) -> list[tuple[str, str]]:
    """The columns of a slot's inputs, with their types."""
    return [(f"s{number}_{place}", kind) for place, kind in enumerate(slot.kinds)]


def _rows(wanted: Sequence[_Wanted], slots: Sequence[Slot], frame: DataFrame) -> DataFrame:
    """A row for each record and stream that wants it, with the event time and its watermark."""
    clauses, time = wanted[0].member.clauses, wanted[0].time
    kept = {"__partition": F.col("_partition"), "__offset": F.col("_offset")}
    if TIME in frame.columns:  # pairs of two streams' records, which have it
        given = F.array(*(F.when(each.condition, _given(each, slots)) for each in wanted))
        rows = frame.select(TIME, given.alias("__given"), *(column.alias(name) for name, column in kept.items()))
        rows = rows.select(TIME, *kept, F.inline("__given"))
    else:
        malformed = F.col(CORRUPT).isNotNull() if CORRUPT in frame.columns else F.lit(False)
        looked = Looked(time, F.col("_timestamp"), malformed)
        taken = is_kept(looked, clauses)
        given = F.array(*(F.when(taken & each.condition, _given(each, slots)) for each in wanted))
        rows = watched(frame, looked, clauses, given, kept)
    return rows.where(F.col("__stream").isNotNull())


def _given(each: _Wanted, slots: Sequence[Slot]) -> Column:
    """What a stream gives to a record: its number, its window's lengths in microseconds, its keys, and its inputs."""
    window = each.member.clauses.window
    lengths = (0, 0, 0)
    if isinstance(window, Interval):
        lengths = window.length_ms, window.sliding_ms, window.offset_ms
    elif isinstance(window, Session):
        lengths = window.gap_ms, 0, 0
    inputs = {place: each_input for each_input, place in _placed(each, slots)}
    columns = []
    for number, slot in enumerate(slots):
        given = inputs[number].columns if number in inputs else [F.lit(None)] * len(slot.kinds)
        for (name, kind), value in zip(_inputs_of(number, slot), given, strict=True):
            columns.append(value.cast(kind).alias(name))
    keys = F.array(*(key_text(column, kind) for _, column, kind in each.keys)).cast("array<string>")
    return F.struct(
        F.lit(each.member.number).alias("__stream"),
        *(F.lit(ms * 1000).cast("bigint").alias(name) for ms, name in zip(lengths, _LENGTHS, strict=True)),
        keys.alias("__keys"),
        each.mark.alias("__mark"),
        *columns,
    )


def _placed(each: _Wanted, slots: Sequence[Slot]) -> Iterator[tuple[Input, int]]:
    at = places(each.needs, slots)
    for found in each.needs.inputs:
        yield found, at[found.slot, found.of]


def _windowed(wanted: Sequence[_Wanted], rows: DataFrame) -> DataFrame:
    """A row for each window that contains a record; `__w` is its end. Spark makes the sessions."""
    clauses = wanted[0].member.clauses
    if not isinstance(clauses.window, Interval):
        gap = F.concat(F.col("__length").cast("string"), F.lit(" microseconds"))
        return rows.withColumn("__w", F.session_window(F.col(TIME), gap)).withColumn("__at", F.unix_micros(TIME))
    at, length, step = F.col("__at"), F.col("__length"), F.col("__step")
    rows = rows.withColumn("__at", F.unix_micros(TIME)).drop(TIME)
    last = at - F.pmod(at - F.col("__offset_us"), step)
    rows = rows.withColumn("__last", last)
    earlier = F.floor((length - 1 - (at - F.col("__last"))) / step).cast("bigint")
    first = F.col("__last") - earlier * step
    rows = rows.withColumn("__start", F.explode(F.sequence(first, F.col("__last"), step)))
    end = F.timestamp_micros(F.col("__start") + length)
    return rows.withColumn("__w", end.alias("__w", metadata={_WATERMARK: clauses.watermark_ms}))


# --- windows to results -----------------------------------------------------------------------------------------------


class _Result(NamedTuple):
    """A stream's results: a window's results, over columns of `frame`."""

    number: int
    outputs: Selected
    frame: DataFrame


def _results(spark: SparkSession, each: _Wanted, slots: Sequence[Slot], made: DataFrame) -> _Result:
    clauses, stages = each.member.clauses, each.member.stages
    if isinstance(clauses.window, Interval):
        end = F.col("__w")
        start = F.timestamp_micros(F.unix_micros(end) - clauses.window.length_ms * 1000)
    else:
        start, end = F.col("__w.start"), F.col("__w.end")
    at = places(each.needs, slots)
    aggregates = _aggregates(each, made, at)
    keys = {name: key_value(F.col("__keys")[place], kind) for place, (name, _, kind) in enumerate(each.keys)}
    windows = made.select(
        start.alias(START),
        end.alias(END),
        (F.unix_millis(end) - F.unix_millis(start)).alias(DURATION),
        *(value.alias(name) for name, value in keys.items()),
        *(value.alias(column) for column, value in aggregates.items()),
        _key(_tags(clauses, keys) or keys).alias("_key"),
        start.alias("_timestamp"),
        F.lit(None).cast(PARTS["_headers"]).alias("_headers"),
    )
    try:
        return _Result(each.member.number, _outputs(spark, stages, windows), windows)
    except QueryError as error:
        raise MemberError(each.member.number, str(error)) from None


def _aggregates(each: _Wanted, made: DataFrame, at: Mapping[tuple[Slot, tuple[str, ...]], int]) -> dict[str, Column]:
    """The results of the SELECT's aggregates, made from slots. Raises MemberError."""
    own = {key: F.col(f"a{place}") for key, place in at.items()}
    found = {column: result(own) for column, result in each.needs.results}
    fill = each.member.clauses.fill
    if fill is None:
        return found
    last = {key: F.col(prior(f"a{place}")) for key, place in at.items()}
    before = {column: result(last) for column, result in each.needs.results}
    kinds = [field.dataType.simpleString() for field in made.select(*found.values()).schema]
    try:
        check_values(fill, found)
        return {
            column: fill_value(fill, number, before[column], found[column], kinds[number])
            for number, column in enumerate(found)
        }
    except ValueError as error:
        raise MemberError(each.member.number, str(problem(each.member.clauses.text, fill.at, str(error)))) from None


def _together(spark: SparkSession, found: Sequence[_Result], made: DataFrame) -> DataFrame:
    """One projection of all streams' windows: each window is only projected by its own stream."""
    columns = [column(jvm_of(spark), alias) for each in found for alias in projected(each.frame)]
    result = F.lit(None)
    for each in found:
        outputs = each.outputs
        mine = (F.col("__stream") == each.number) & outputs.condition
        row = F.struct(outputs.key.alias("key"), outputs.value.alias("value"), outputs.timestamp.alias("timestamp"))
        result = F.when(mine, row).otherwise(result)
    # All slots are output, whoever uses them: Spark would drop an unused aggregate, together with its state.
    kept = [name for name in made.columns if name.startswith("a")]
    rows = made.select("__stream", *kept, *columns)
    rows = rows.select(F.col("__stream").alias("stream"), result.alias("__result"), *kept)
    return rows.select("stream", F.col("__result").isNotNull().alias(_WANTED), "__result.*", *kept)


def _tags(clauses: Clauses, keys: Mapping[str, Column]) -> dict[str, Column]:
    """The columns of TAGS, under their names there."""
    known = {name.lower(): column for name, column in keys.items()}
    return {tag.name: known[tag.tokens[0].name.lower()] for tag in clauses.tags}


def _key(columns: Mapping[str, Column]) -> Column:
    """The default key of a result: the grouping value as text; for several columns, a JSON object."""
    if not columns:
        return F.lit(None).cast("string")
    if len(columns) == 1:
        return next(iter(columns.values())).cast("string")
    return F.to_json(F.struct(*(value.alias(name) for name, value in columns.items())), OBJECT)


def _outputs(spark: SparkSession, stages: Stages, windows: DataFrame) -> Selected:
    """The columns of the results. Raises QueryError."""
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


def check_fits(topic: str, have: str, gives: str) -> None:
    """Raises QueryError if a topic's columns differ from those that a stream returns."""
    if have and _kinds(have) != _kinds(gives):
        raise QueryError(f"{topic} has the columns {have}, and the stream gives {gives}: use another topic")


def _kinds(ddl: str) -> dict[str, str]:
    try:
        found = StructType.fromDDL(ddl)
    except Exception:
        return {"": ddl}
    return {field.name: field.dataType.simpleString() for field in found} if isinstance(found, StructType) else {}
