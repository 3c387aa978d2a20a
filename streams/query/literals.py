"""Refuses literals that do not fit the type they are compared with, and literals whose meaning changes every day.

Where another type is needed, Spark casts a text once, while it plans. A text that does not cast becomes null, and a
condition with null is never true: `temp > 'hot'` would silently never give a result. Spark's own cast decides here,
so a text that Spark accepts (`temp > '20.5'`, `at > '2024-01-05'`) is accepted.

`IN` works the other way round: Spark compares the column as a text. A literal that differs from what Spark writes for a
value of the column's type never matches either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from barnabas.streams.query.catalyst import jvm_of, kind_of, nodes, seq
from barnabas.streams.query.errors import QueryError

_NOW = re.compile(r"\s*(?:now|today|tomorrow|yesterday)\b.*", re.IGNORECASE | re.DOTALL)
#: Spark's planner accepts it, but its cast does not.
_EPOCH = re.compile(r"\s*epoch\b.*", re.IGNORECASE | re.DOTALL)
_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
_TREES = "org.apache.spark.sql.catalyst.trees.TreePattern"
_CAST = "org.apache.spark.sql.catalyst.expressions.Cast"


class Literals:
    """Checks the literals in the analysed expressions of one query."""

    def __init__(self, spark: Any) -> None:
        patterns = getattr(jvm_of(spark), _TREES)
        self._interesting = patterns.CAST(), patterns.RUNTIME_REPLACEABLE()
        self._by_user = getattr(jvm_of(spark), _CAST).USER_SPECIFIED_CAST()

    def check(self, expression: Any) -> None:
        """Raises QueryError for a literal that does not have the wanted type."""
        for one in self._nodes(expression):
            kind = kind_of(one)
            if kind == "Cast":
                self._check_cast(one)
            elif kind == "In":
                self._check_in(one)

    def check_plan(self, plan: Any) -> None:
        """The same for all expressions of an analysed plan, except those of views."""
        for query in (plan, *seq(plan.subqueriesAll())):
            for node in _plans(query):
                for expression in seq(node.expressions()):
                    self.check(expression)

    def check_times(self, expression: Any) -> None:
        """Raises QueryError for a time that depends on when the query is planned."""
        for one in self._nodes(expression):
            kind = kind_of(one)
            if kind.startswith("ParseTo") or (kind == "Cast" and str(one.dataType().sql()) in _TIMES):
                for text in filter(None, map(_text, seq(one.children()))):
                    if is_now(text):
                        raise QueryError(changes(text))

    def _nodes(self, expression: Any) -> Iterator[Any]:
        """The nodes of an expression; none if it has no casts, because each call to the JVM takes time."""
        if any(expression.containsPattern(pattern) for pattern in self._interesting):
            yield from nodes(expression)

    def _check_cast(self, cast: Any) -> None:
        text, kind = _text(cast.child()), str(cast.dataType().sql())
        if text is None or cast.getTagValue(self._by_user).isDefined():
            return
        planned = kind in _TIMES and (is_now(text) or _EPOCH.fullmatch(text))
        if not planned and cast.eval(None) is None:
            raise QueryError(_is_none(text, kind))

    def _check_in(self, found: Any) -> None:
        value = found.value()
        if kind_of(value) != "Cast" or value.getTagValue(self._by_user).isDefined():
            return
        wanted, as_text = value.child().dataType(), value.dataType()
        for one in seq(found.list()):
            text = _text(one.child() if kind_of(one) == "Cast" else one)
            if text is None:
                continue
            literal = one.child() if kind_of(one) == "Cast" else one
            cast = value.copy(literal, wanted, value.timeZoneId(), value.evalMode())
            if cast.eval(None) is None:
                raise QueryError(_is_none(text, str(wanted.sql())))
            written = value.copy(cast, as_text, value.timeZoneId(), value.evalMode()).eval(None)
            if written is not None and str(written.toString()) != text:
                raise QueryError(
                    f"IN compares texts here, and Spark writes the {wanted.sql()} {_quoted(text)} as "
                    f"{_quoted(str(written.toString()))}: write it like this, or compare with ="
                )


def is_now(text: str) -> bool:
    """Whether Spark takes a text for a time that changes every day."""
    return _NOW.fullmatch(text) is not None


def changes(text: str) -> str:
    """Why such a text cannot be a query's literal."""
    return f"{_quoted(text)} is another time each day: a result must not depend on when it is made, so write the time"


def _is_none(text: str, kind: str) -> str:
    return (
        f"{_quoted(text)} is not a valid {kind}, and a condition with it would never be true: write a {kind}, or "
        "CAST what it is compared with AS STRING"
    )


def _quoted(text: str) -> str:
    return f"'{text[:60]}{'…' if len(text) > 60 else ''}'"


def _text(expression: Any) -> str | None:
    """The text, if this is a text literal."""
    if kind_of(expression) != "Literal" or str(expression.dataType().sql()) != "STRING":
        return None
    value = expression.value()
    return None if value is None else str(value.toString())


def _plans(plan: Any) -> Iterator[Any]:
    if kind_of(plan) != "View":
        yield plan
        for child in seq(plan.children()):
            yield from _plans(child)
