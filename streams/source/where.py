"""Filters on columns, in the worker: rows that Spark would drop need not go to the JVM.

What is kept here Spark looks at again, so a mask may keep too much, and must never drop a row that Spark keeps.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

_COMPARISONS: dict[type[Filter], Callable[..., Any]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}
_TEXT: dict[type[Filter], Callable[..., Any]] = {
    StringContains: pc.match_substring,
    StringEndsWith: pc.ends_with,
    StringStartsWith: pc.starts_with,
}
#: Types of columns that are compared, and of the literals that Spark gives for them.
_LITERALS: Sequence[tuple[Callable[[pa.DataType], bool], type]] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_string, str),
    (pa.types.is_date32, datetime.date),
)
_NULLS: dict[type[Filter], Callable[..., Any]] = {IsNotNull: pc.is_valid, IsNull: pc.is_null}


def decidable(filters: Iterable[Filter], schema: pa.Schema) -> list[Filter]:
    """Those of the filters that `mask` can tell of columns of this schema."""
    return [one for one in filters if _decides(one, schema)]


def mask(filters: Sequence[Filter], rows: pa.RecordBatch) -> pa.BooleanArray:
    """Which rows may meet all these filters, at least one, each of them `decidable`. There are no nulls in it."""
    found = None
    for one in filters:
        kept = _kept(one, rows.column(one.attribute[0])).fill_null(False)  # type: ignore[attr-defined]
        found = kept if found is None else pc.and_(found, kept)
    return found


def _decides(one: Filter, schema: pa.Schema) -> bool:
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    if len(attribute) != 1 or schema.get_field_index(attribute[0]) < 0:
        return False
    kind = schema.field(attribute[0]).type
    if type(one) in _NULLS:
        return True
    if type(one) in _TEXT:
        return bool(pa.types.is_string(kind))
    if isinstance(one, In):
        return not pa.types.is_floating(kind) and all(_fits(value, kind) for value in one.value)
    return type(one) in _COMPARISONS and _fits(one.value, kind)  # type: ignore[attr-defined]


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Whether a literal is of the column's own type; NaN is none that Arrow compares as Spark does."""
    if not any(test(kind) and type(value) is literal for test, literal in _LITERALS) or value != value:
        return False
    try:
        return bool(pa.scalar(value, kind).is_valid)
    except (pa.ArrowInvalid, OverflowError):
        return False


def _kept(one: Filter, column: pa.Array) -> pa.BooleanArray:
    if type(one) in _NULLS:
        return _NULLS[type(one)](column)
    if type(one) in _TEXT:
        return _TEXT[type(one)](column, one.value)  # type: ignore[attr-defined]
    if isinstance(one, In):
        found = pc.is_in(column, value_set=pa.array(one.value, column.type))
    else:
        found = _COMPARISONS[type(one)](column, pa.scalar(one.value, column.type))  # type: ignore[attr-defined]
    if pa.types.is_floating(column.type):  # for Spark NaN equals itself, and is larger than all else
        return pc.or_(found, pc.is_nan(column))
    return found
