"""Conditions in the worker have the outcome that they have in Spark."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.streams.source.where import Condition, decidable, mask

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
COMPARISONS = ("EqualTo", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual")


def kept(*conditions: Condition) -> list[int]:
    assert decidable(conditions, ROWS.schema) == conditions
    found = mask(conditions, ROWS)
    assert found.null_count == 0
    return [row for row, keep in enumerate(found.to_pylist()) if keep]


def compares(kind: str, left: Any, right: Any) -> bool:
    """Spark's own comparison of two non-null values; NaN equals itself and is greater than all other numbers."""
    order = (left != left) - (right != right) or (0 if left != left else (left > right) - (left < right))
    return {
        "EqualTo": order == 0,
        "GreaterThan": order > 0,
        "GreaterThanOrEqual": order >= 0,
        "LessThan": order < 0,
        "LessThanOrEqual": order <= 0,
    }[kind]


@given(kind=st.sampled_from(COMPARISONS), name=st.sampled_from(sorted(COLUMNS)), data=st.data())
def test_comparisons_are_those_of_spark(kind: str, name: str, data: st.DataObject) -> None:
    _, values = COLUMNS[name]
    literal = data.draw(st.sampled_from([value for value in values if value is not None and value == value]))
    found = kept(Condition(kind, name, literal))
    for row, value in enumerate(values):
        assert (row in found) == (value is not None and compares(kind, value, literal))


LEAVES = [
    Condition("IsNull", "t"),
    Condition("EqualTo", "t", "ab"),
    Condition("In", "n", (0, 1)),
    Condition("LessThan", "x", 1.0),
    Condition("EqualTo", "b", True),
    Condition("StringContains", "t", "b"),
    Condition("GreaterThan", "x", 0.0),
]


def trees() -> st.SearchStrategy[Condition]:
    return st.recursive(
        st.sampled_from(LEAVES),
        lambda parts: (
            st.builds(lambda part: Condition("Not", parts=(part,)), parts)
            | st.builds(lambda kind, a, b: Condition(kind, parts=(a, b)), st.sampled_from(["And", "Or"]), parts, parts)
        ),
        max_leaves=6,
    )


def outcome(one: Condition, row: int) -> bool | None:
    """One of SQL's three values."""
    if one.kind == "Not":
        inner = outcome(one.parts[0], row)
        return None if inner is None else not inner
    if one.kind in ("And", "Or"):
        sides = [outcome(part, row) for part in one.parts]
        decides = one.kind == "Or"
        return decides if decides in sides else None if None in sides else not decides
    value = COLUMNS[one.column][1][row]
    if one.kind == "IsNull":
        return value is None
    if value is None:
        return None
    if one.kind == "In":
        return value in one.value
    return one.value in value if one.kind == "StringContains" else compares(one.kind, value, one.value)


@given(trees())
def test_joined_conditions_have_three_values(one: Condition) -> None:
    assert kept(one) == [row for row in range(ROWS.num_rows) if outcome(one, row)]


def test_sets_nulls_and_texts() -> None:
    assert kept(Condition("In", "n", (0, 1))) == [2, 3]
    assert kept(Condition("In", "t", ("b", "zz"))) == [3]
    assert kept(Condition("IsNull", "t")) == [0]
    assert kept(Condition("IsNotNull", "x")) == [1, 2, 3, 4]
    assert kept(Condition("StringStartsWith", "t", "a")) == [2, 4]
    assert kept(Condition("StringEndsWith", "t", "b")) == [2, 3, 4]
    assert kept(Condition("StringContains", "t", "%")) == [4]
    assert kept(Condition("GreaterThan", "n", -1), Condition("LessThan", "i", 7), Condition("EqualTo", "b", False)) == [
        2
    ]


@pytest.mark.parametrize(
    "one",
    [
        Condition("GreaterThan", "n", 1.5),  # has a different type from the column
        Condition("EqualTo", "b", 1),
        Condition("EqualTo", "i", 2**40),
        Condition("EqualTo", "n", 2**70),
        Condition("LessThanOrEqual", "x", NAN),
        Condition("In", "x", (0.0,)),  # a set distinguishes the two zeros
        Condition("In", "n", (1, None)),
        Condition("EqualTo", "t", None),
        Condition("EqualTo", "", 1),
        Condition("EqualTo", "missing", 1),
        Condition("EqualNullSafe", "n", 1),
        Condition("Not", parts=(Condition("EqualTo", "n", 1.5),)),
        Condition("Or", parts=(Condition("EqualTo", "n", 1), Condition("EqualNullSafe"))),
    ],
)
def test_what_arrow_does_not_tell_as_spark_does_is_left_to_spark(one: Condition) -> None:
    assert decidable([one], ROWS.schema) == ()
