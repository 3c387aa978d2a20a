"""What a query asks of its rows at least, as filters that the scan can apply before the rows go to the JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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

from streams.query.catalyst import nodes, seq

#: By the names that they have in the JVM, too.
_FILTERS: dict[str, type[Filter]] = {kind.__name__: kind for kind in (
    EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, IsNull, LessThan, LessThanOrEqual, StringContains,
    StringEndsWith, StringStartsWith,
)}  # fmt: skip


def filters_of(jvm: Any, optimised: Any) -> tuple[Filter, ...]:
    """What the rows of the frame must meet, as far as Spark itself could say it to a data source.

    It may be less than the query's condition, and never more.
    """
    strategy = getattr(getattr(jvm.org.apache.spark.sql.execution.datasources, "DataSourceStrategy$"), "MODULE$")
    found: list[Filter] = []
    for node in nodes(optimised):
        name = str(node.nodeName())
        if name == "Project":
            found = []  # what stands above speaks of its columns
        elif name == "Filter":
            for condition in _conjuncts(node.condition()):
                told = strategy.translateFilter(condition, True)
                one = _filter(told.get()) if told.isDefined() else None
                found += [] if one is None else [one]
        else:
            break
    return tuple(found)


def _conjuncts(condition: Any) -> Iterator[Any]:
    if condition.getClass().getSimpleName() != "And":
        yield condition
        return
    for side in seq(condition.children()):
        yield from _conjuncts(side)


def _filter(told: Any) -> Filter | None:
    """A filter of the JVM as one of Python's, which have the same names; None for other ones."""
    kind: Any = _FILTERS.get(str(told.getClass().getSimpleName()))
    if kind is None:
        return None
    column = (str(told.attribute()),)
    if kind in (IsNull, IsNotNull):
        made: Filter = kind(column)
    else:
        made = kind(column, tuple(told.values()) if kind is In else told.value())
    return made
