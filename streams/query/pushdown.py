"""What a query asks of its rows at least, as conditions that the scan can apply before the rows go to the JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streams.query.catalyst import nodes, seq
from streams.source.where import Condition


def conditions_of(jvm: Any, optimised: Any) -> tuple[Condition, ...]:
    """What the rows of the frame must meet, as far as Spark itself could say it to a data source.

    It may be less than the query's condition, and never more.
    """
    strategy = getattr(getattr(jvm.org.apache.spark.sql.execution.datasources, "DataSourceStrategy$"), "MODULE$")
    found: list[Condition] = []
    for node in nodes(optimised):
        name = str(node.nodeName())
        if name == "Project":
            found = []  # what stands above speaks of its columns
        elif name == "Filter":
            for condition in _conjuncts(node.condition()):
                told = strategy.translateFilter(condition, True)
                found += [_condition(told.get())] if told.isDefined() else []
        else:
            break
    return tuple(found)


def _conjuncts(condition: Any) -> Iterator[Any]:
    if condition.getClass().getSimpleName() != "And":
        yield condition
        return
    for side in seq(condition.children()):
        yield from _conjuncts(side)


def _condition(told: Any) -> Condition:
    """A filter of Spark's; one that joins others is of no column, and nobody will know it."""
    kind, parts = str(told.getClass().getSimpleName()), dir(told)
    if "attribute" not in parts:
        return Condition(kind, "")
    value = told.value() if "value" in parts else tuple(told.values()) if "values" in parts else None
    return Condition(kind, str(told.attribute()), value)
