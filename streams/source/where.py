"""Evaluates conditions on columns in the worker, with the same outcome as in Spark, so that rows which Spark would drop
need not go to the JVM.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc


class Condition(msgspec.Struct, frozen=True):
    """A comparison of a column with a literal (`In`: a tuple of literals), or `And`, `Or` or `Not` of `parts`.
    The kinds are named like Spark's filters.
    """

    kind: str
    column: str = ""
    value: Any = None
    parts: tuple[Condition, ...] = ()


_COMPARISONS: dict[str, Callable[..., Any]] = {
    "EqualTo": pc.equal,
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
}
_UPWARDS = ("GreaterThan", "GreaterThanOrEqual")
_TEXT: dict[str, Callable[..., Any]] = {
    "StringContains": pc.match_substring,
    "StringEndsWith": pc.ends_with,
    "StringStartsWith": pc.starts_with,
}
_NULLS: dict[str, Callable[..., Any]] = {"IsNotNull": pc.is_valid, "IsNull": pc.is_null}
#: With three values: true, false, and null for unknown.
_JOINED: dict[str, Callable[..., Any]] = {"And": pc.and_kleene, "Or": pc.or_kleene, "Not": pc.invert}
#: The types of columns that are compared, and of the literals that Spark passes for them.
_LITERALS: Sequence[tuple[Callable[[pa.DataType], bool], type]] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_string, str),
    (pa.types.is_date32, datetime.date),
)


def decidable(conditions: Iterable[Condition], schema: pa.Schema) -> tuple[Condition, ...]:
    """The conditions that `mask` can decide for columns of this schema."""
    return tuple(one for one in conditions if _decides(one, schema))


def mask(conditions: Sequence[Condition], rows: pa.RecordBatch) -> pa.BooleanArray:
    """Which rows meet all these conditions (at least one, all `decidable`). The mask has no nulls."""
    return reduce(pc.and_, (_outcome(one, rows).fill_null(False) for one in conditions))


def _decides(one: Condition, schema: pa.Schema) -> bool:
    if one.kind in _JOINED:
        return all(_decides(part, schema) for part in one.parts)
    if schema.get_field_index(one.column) < 0:
        return False
    kind = schema.field(one.column).type
    if one.kind in _NULLS:
        return True
    if one.kind in _TEXT:
        return bool(pa.types.is_string(kind))
    if one.kind == "In":  # a set distinguishes the two zeros
        return not pa.types.is_floating(kind) and all(_fits(value, kind) for value in one.value)
    return one.kind in _COMPARISONS and _fits(one.value, kind)


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Whether a literal has the column's own type. NaN does not count: Arrow compares it differently from Spark."""
    if not any(test(kind) and type(value) is literal for test, literal in _LITERALS) or value != value:
        return False
    try:
        return bool(pa.scalar(value, kind).is_valid)
    except (pa.ArrowInvalid, OverflowError):
        return False


def _outcome(one: Condition, rows: pa.RecordBatch) -> pa.BooleanArray:
    """For each row: true, false, or null."""
    if one.kind in _JOINED:
        return _JOINED[one.kind](*(_outcome(part, rows) for part in one.parts))
    column = rows.column(one.column)
    if one.kind in _NULLS:
        return _NULLS[one.kind](column)
    if one.kind in _TEXT:
        return _TEXT[one.kind](column, one.value)
    if one.kind == "In":
        found = pc.is_in(column, value_set=pa.array(one.value, column.type))
        return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.bool_()))
    found = _COMPARISONS[one.kind](column, pa.scalar(one.value, column.type))
    if pa.types.is_floating(column.type) and one.kind in _UPWARDS:  # for Spark, NaN is larger than everything else
        return pc.or_(found, pc.is_nan(column))
    return found
