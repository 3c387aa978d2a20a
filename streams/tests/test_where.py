"""Filters in the worker keep at least what Spark keeps, and nothing that is clearly out."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from streams.source.where import decidable, mask

NAN = math.nan
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "n": (pa.int64(), [None, -1, 0, 1, 2**63 - 1]),
    "i": (pa.int32(), [None, -1, 0, 1, 7]),
    "x": (pa.float64(), [None, -0.0, 0.0, 1.5, NAN]),
    "t": (pa.string(), [None, "", "ab", "b", "a%b"]),
    "b": (pa.bool_(), [None, True, False, True, False]),
    "d": (pa.date32(), [None, *(datetime.date(2024, 1, n) for n in (1, 2, 3, 4))]),
}
ROWS = pa.RecordBatch.from_arrays(
    [pa.array(values, kind) for kind, values in COLUMNS.values()],
    schema=pa.schema([pa.field(name, kind) for name, (kind, _) in COLUMNS.items()]),
)
COMPARISONS = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def kept(*filters: Filter) -> list[int]:
    assert decidable(filters, ROWS.schema) == list(filters)
    found = mask(filters, ROWS)
    assert found.null_count == 0
    return [row for row, keep in enumerate(found.to_pylist()) if keep]


def compares(kind: type[Filter], left: Any, right: Any) -> bool:
    """Spark's own comparison of two values that are not null; NaN equals itself and is above all other numbers."""
    order = (left != left) - (right != right) or (0 if left != left else (left > right) - (left < right))
    return {
        EqualTo: order == 0,
        GreaterThan: order > 0,
        GreaterThanOrEqual: order >= 0,
        LessThan: order < 0,
        LessThanOrEqual: order <= 0,
    }[kind]


@given(kind=st.sampled_from(COMPARISONS), name=st.sampled_from(sorted(COLUMNS)), data=st.data())
def test_comparisons_are_those_of_spark(kind: Any, name: str, data: st.DataObject) -> None:
    _, values = COLUMNS[name]
    literal = data.draw(st.sampled_from([value for value in values if value is not None and value == value]))
    found = kept(kind((name,), literal))
    for row, value in enumerate(values):
        if value is not None and compares(kind, value, literal):
            assert row in found
        elif value is None or value == value:  # of NaN too much may be kept
            assert row not in found


def test_sets_nulls_and_texts() -> None:
    assert kept(In(("n",), (0, 1))) == [2, 3]
    assert kept(In(("t",), ("b", "zz"))) == [3]
    assert kept(IsNull(("t",))) == [0]
    assert kept(IsNotNull(("x",))) == [1, 2, 3, 4]
    assert kept(StringStartsWith(("t",), "a")) == [2, 4]
    assert kept(StringEndsWith(("t",), "b")) == [2, 3, 4]
    assert kept(StringContains(("t",), "%")) == [4]
    assert kept(GreaterThan(("n",), -1), LessThan(("i",), 7), EqualTo(("b",), False)) == [2]


@pytest.mark.parametrize(
    "one",
    [
        GreaterThan(("n",), 1.5),  # of another type than the column
        EqualTo(("b",), 1),
        EqualTo(("i",), 2**40),
        EqualTo(("n",), 2**70),
        LessThanOrEqual(("x",), NAN),
        In(("x",), (0.0,)),  # a set knows two zeros
        In(("n",), (1, None)),
        EqualTo(("t",), None),
        EqualTo(("s", "x"), 1),
        EqualTo(("missing",), 1),
        EqualNullSafe(("n",), 1),
        Not(EqualTo(("n",), 1)),
    ],
)
def test_what_arrow_does_not_tell_as_spark_does_is_left_to_spark(one: Filter) -> None:
    assert decidable([one], ROWS.schema) == []
