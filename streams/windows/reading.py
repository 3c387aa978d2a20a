"""What a query reads from its source: the columns that its streams need, and what the reader may aggregate
(panes.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType, StructField, StructType

from barnabas.streams.query.analysis import Resolved, plain_column, references
from barnabas.streams.query.catalyst import kind_of
from barnabas.streams.source.names import CORRUPT
from barnabas.streams.windows.panes import PANE, STANDS_FOR, Carrier, Panes
from barnabas.streams.windows.slots import COUNT, Input, Needs, Slot, is_light
from barnabas.wire.streams.clauses import RECORD_TIME, Clauses
from barnabas.wire.streams.windows import Interval

_ALWAYS = ("_timestamp", "_partition", "_offset", CORRUPT)
_NUMBERS = frozenset(("tinyint", "smallint", "int", "bigint", "float", "double"))
#: Types whose values are equal only if their bytes are.
_KEYS = frozenset(("string", "boolean", "tinyint", "smallint", "int", "bigint", "date", "timestamp", "binary"))


class Uses(NamedTuple):
    """How a stream uses the columns of its source."""

    needed: frozenset[str]
    keys: frozenset[str]  # those that its condition and its grouping use
    time: str | None  # set if the event time is an unchanged column
    inputs: Mapping[
        str, str
    ]  # the aggregates' inputs that are unchanged columns, or no column (a value that is always there)


class Reading(NamedTuple):
    """What is read from the source: its columns, and those of them that the reader adds."""

    schema: StructType
    panes: Panes | None = None

    @property
    def read(self) -> StructType:
        """The columns, with those that the reader adds before the driver's own."""
        if self.panes is None:
            return self.schema
        fields = self.schema.fields
        place = next(number for number, field in enumerate(fields) if field.name == CORRUPT) + 1
        return StructType([*fields[:place], *_pane_fields(self.panes, self.schema), *fields[place:]])

    @property
    def panes_option(self) -> str:
        """The value of the source's option."""
        return msgspec.json.encode(self.panes).decode() if self.panes is not None else ""


def uses_of(found: Resolved, keys: Sequence[str], columns: Sequence[str]) -> Uses:
    """The columns that a stream's inputs use; `columns` are the frame's."""
    names = {name.lower(): name for name in columns}
    of = {name: expression for name, _, expression in found.chosen}
    grouped = found.of_condition.union(*(references(of[key], names) for key in keys))
    inputs = {}
    for name, expression in of.items():
        column = plain_column(expression, names)
        if column is not None:
            inputs[name] = column
        elif _is_there(expression):
            inputs[name] = ""
    return Uses(frozenset(found.needed), frozenset(grouped), inputs.get("__time"), inputs)


def _is_there(expression: Any) -> bool:
    """Whether an expression is a literal other than null, such as the 1 of count(*)."""
    return kind_of(expression) == "Alias" and kind_of(expression.child()) == "Literal" and not expression.nullable()


def reading_of(
    members: Sequence[tuple[Clauses, tuple[int, ...], Uses, Needs]],
    slots: Sequence[Slot],
    schema: StructType,
    own: Sequence[str],
) -> Reading:
    """What a query of these streams reads from a source with the columns of `schema`; `own` are the driver's."""
    needed = frozenset[str]().union(_ALWAYS, own, *(uses.needed for _, _, uses, _ in members))
    panes = _panes_of(members, slots, schema) if CORRUPT in schema.names else None
    return Reading(StructType([field for field in schema.fields if field.name in needed]), panes)


def _panes_of(
    members: Sequence[tuple[Clauses, tuple[int, ...], Uses, Needs]], slots: Sequence[Slot], schema: StructType
) -> Panes | None:
    """The panes; None if a stream needs its records one by one."""
    clauses, _, uses, _ = members[0]
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    keys = frozenset[str]().union(*(each.keys for _, _, each, _ in members))
    carriers: dict[Carrier, None] = {}
    spans: list[int] = []
    for each, _, own, needs in members:
        if not isinstance(each.window, Interval) or each.by_clock:
            return None
        spans += each.window.length_ms, each.window.sliding_ms, each.window.offset_ms
        for one in needs.inputs:
            carrier = carrier_of(one, own, kinds)
            if carrier is None or (one.slot == COUNT and COUNT in slots):
                return None
            carriers[carrier] = None
    counts = tuple(sorted(carriers, key=lambda each: each.name))
    clash = {PANE, STANDS_FOR, *(each.name for each in counts)} & kinds.keys()
    if uses.time is None or not is_light(slots) or clash or not all(_is_key(kinds[key]) for key in keys):
        return None
    starts = [given for _, given, _, _ in members]
    most = max(map(len, starts))
    latest = [max(given[number] if number < len(given) else 0 for given in starts) for number in range(most)]
    ahead_us = clauses.max_ahead_ms * 1000 if clauses.time != RECORD_TIME else 0
    return Panes(math.gcd(*spans) * 1000, uses.time, tuple(sorted(keys)), counts, ahead_us, tuple(latest))


def _is_key(kind: str) -> bool:
    return kind in _KEYS or kind.startswith("decimal")


def carrier_of(each: Input, uses: Uses, kinds: Mapping[str, str]) -> Carrier | None:
    """The carrier that a row for many records has for an input; None if there is none."""
    column, function = uses.inputs.get(each.of[-1]), each.slot.function
    if column is None or each.of[0] == "count_if" or function not in ("count", "sum", "min", "max"):
        return None
    if not column:
        return Carrier("count", "") if each.of[0] == "count" else None
    kind = kinds[column]
    if kind not in _NUMBERS and not (each.of[0] == "count" and _is_key(kind)):
        return None
    return Carrier(function, column)


def carried(needs: Needs, uses: Uses, schema: StructType) -> Needs:
    """A stream's inputs over rows, some of which stand for many records."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    found = []
    for each in needs.inputs:
        carrier = carrier_of(each, uses, kinds)
        assert carrier is not None, each.of
        kind = "bigint" if each.slot == COUNT else each.slot.kinds[0]
        value = F.when(F.col(STANDS_FOR).isNull(), each.columns[0].cast(kind)).otherwise(F.col(carrier.name))
        found.append(each._replace(columns=(value,)))
    return needs._replace(inputs=tuple(found))


def _pane_fields(panes: Panes, schema: StructType) -> list[StructField]:
    """The columns that the reader adds, for Spark."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    found = [StructField(STANDS_FOR, LongType())]
    for each in panes.carriers:
        if each.column:
            is_double = each.function != "count" and kinds[each.column] in ("float", "double")
            found.append(StructField(each.name, DoubleType() if is_double else LongType()))
    return found
