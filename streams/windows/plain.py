"""The result columns of a stream of plain columns and aggregates, found without Spark, which may take seconds to start.

    SELECT _wend, device, avg(temp) AS t FROM sensors WHERE temp > 0 PARTITION BY device INTERVAL(10s)

Items are columns of the window and aggregates of plain columns; conditions compare columns with literals, like those of
simple query topics (`streams.query.plain`). A stream with anything else is left to Spark.

Invariant: the answer is Spark's: that the stream is possible, and the columns of its results.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from barnabas.streams.query import plain
from barnabas.streams.query.parts import PARTS
from barnabas.streams.windows.stages import DURATION, END, START, WINDOWS, Call, Stages, quoted
from barnabas.wire.queries.plan import Values
from barnabas.wire.streams.clauses import RECORD_TIME, Clauses
from barnabas.wire.streams.tokens import joined
from barnabas.wire.streams.windows import Interval, Session

_TIME = pa.timestamp("us", "UTC")
#: The key of `count(*)`, which has no column.
_ANY = "1"


class Given(NamedTuple):
    """The form of the values of a stream's results."""

    value_format: str
    value_schema: str


def given(clauses: Clauses, stages: Stages, values: Values) -> Given | None:
    """The results of a stream over such values; None if only Spark can tell."""
    if clauses.join is not None or clauses.fill is not None or clauses.key:
        return None
    if not isinstance(clauses.window, Interval | Session):
        return None
    inputs = _inputs(clauses, stages, values)
    if inputs is None:
        return None
    if not clauses.by_clock and clauses.time != RECORD_TIME and inputs["__time"] != _TIME:
        return None
    aggregates = {call.column: _result(call, inputs) for call in stages.calls}
    keys = {item.name: inputs[item.name] for item in clauses.partition}
    kinds = {START: _TIME, END: _TIME, DURATION: pa.int64(), **keys, **aggregates}
    if any(kind is None for kind in kinds.values()) or not all(map(_is_key, keys.values())):
        return None
    results = plain.columns(stages.outputs, WINDOWS, pa.schema(list(kinds.items())))
    if results is None or not PARTS.keys().isdisjoint(results):
        return None
    return Given("json", plain.ddl(list(results.items())))


def _inputs(clauses: Clauses, stages: Stages, values: Values) -> dict[str, pa.DataType] | None:
    """The types of aggregates' inputs, of keys, and of the event time, by their names in the stages."""
    chosen = [*stages.columns, *((item.text, item.name) for item in clauses.partition)]
    time = RECORD_TIME if clauses.by_clock else clauses.time
    chosen = [(text, name) for text, name in chosen if text != _ANY] + [(quoted(time), "__time")]
    conditions = [f"({joined(found)})" for found in (clauses.pre_filter, clauses.where) if found]
    text = f"SELECT {', '.join(f'{text} AS {quoted(name)}' for text, name in chosen)} FROM {quoted(clauses.source)}"
    if conditions:
        text += f" WHERE {' AND '.join(conditions)}"
    typed = plain.typed_columns(values)
    if typed is None:
        return None
    hidden = {"_headers", *(("_value",) if typed.names else ())}
    found = plain.columns(text, clauses.source, typed, hidden)
    return None if found is None else found | {name: pa.int32() for text, name in stages.columns if text == _ANY}


def _result(call: Call, inputs: dict[str, pa.DataType]) -> pa.DataType | None:
    """The type of an aggregate's result; None if it is unknown here."""
    kinds = [inputs[name] for name in call.inputs]
    if len(kinds) != 1 or call.literals:
        return None
    (kind,) = kinds
    is_whole, is_number = pa.types.is_integer(kind), pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if call.function == "count":
        return pa.int64()
    if call.function == "sum" and is_number:
        return pa.int64() if is_whole else pa.float64()
    if call.function in ("avg", "mean") and is_number:
        return pa.float64()
    if call.function == "spread" and kind in (pa.int32(), pa.int64(), pa.float64()):
        return kind
    if call.function in ("min", "max", "first", "last") and (is_number or kind in (pa.string(), _TIME)):
        return kind
    return None


def _is_key(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or kind in (pa.string(), pa.bool_(), _TIME)
