"""The conditions that every result row of a query must meet, in a form that the scan can apply before rows go to the
JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from barnabas.streams.query.catalyst import companion, nodes, seq
from barnabas.streams.source.where import Condition

_FRAME = "MapInArrow"


class Least(NamedTuple):
    """Conditions that all results meet, and whether they are the query's only conditions."""

    conditions: tuple[Condition, ...]
    all: bool


def least_of(jvm: Any, optimised: Any, names: Mapping[str, str]) -> Least:
    """Conditions that the frame's rows must meet, as far as Spark itself could pass them to a data source.

    `names` are the frame's columns, whatever case the query writes them in.
    """
    strategy = companion(jvm.org.apache.spark.sql.execution.datasources, "DataSourceStrategy")
    found: list[Condition] = []
    everything = True
    for node in nodes(optimised):
        name = str(node.nodeName())
        if name == "Project":
            everything = everything and not found
            found = []  # the plan above refers to its columns
        elif name == "Filter":
            for condition in _conjuncts(node.condition()):
                told = strategy.translateFilter(condition, False)
                everything = everything and bool(told.isDefined())
                found += [_condition(told.get(), names)] if told.isDefined() else []
        else:
            return Least(tuple(found), everything and name == _FRAME)  # and not one that Spark knows to be empty
    return Least((), False)


def _conjuncts(condition: Any) -> Iterator[Any]:
    if condition.getClass().getSimpleName() != "And":
        yield condition
        return
    for side in seq(condition.children()):
        yield from _conjuncts(side)


def _condition(told: Any, names: Mapping[str, str]) -> Condition:
    """A filter of Spark; an unknown kind is undecidable."""
    kind, parts = str(told.getClass().getSimpleName()), dir(told)
    if kind == "Not":
        return Condition(kind, parts=(_condition(told.child(), names),))
    if kind in ("And", "Or"):
        return Condition(kind, parts=tuple(_condition(side, names) for side in (told.left(), told.right())))
    if "attribute" not in parts:
        return Condition(kind)
    value = told.value() if "value" in parts else tuple(told.values()) if "values" in parts else None
    column = str(told.attribute())
    return Condition(kind, names.get(column.lower(), column), value)
