"""Spark's name for a column without an alias: its expression, written in Spark's own way."""

from __future__ import annotations

from barnabas.streams.select import syntax
from barnabas.streams.select.errors import NeedsSpark
from barnabas.streams.select.syntax import Call, Column, Expression, Literal

_INFIX = {"and": "AND", "or": "OR", **{sign: sign for sign in ("+", "-", "*", "/", "%", "=", "<", "<=", ">", ">=")}}
_BEHIND = {"is null": "IS NULL", "is not null": "IS NOT NULL"}
_BEFORE = {"negative": "-", "not": "NOT"}


def name_of(expression: Expression) -> str:
    """The name. Raises NeedsSpark if it is not certain."""
    if isinstance(expression, Call) and expression.name.startswith("cast ") and isinstance(expression.args[0], Column):
        return expression.args[0].name  # a column that is only cast keeps its name
    return _written(expression)


def _written(expression: Expression) -> str:
    if isinstance(expression, Column):
        return expression.name
    if isinstance(expression, Literal):
        if expression.kind == syntax.DOUBLE:
            raise NeedsSpark("a number with an exponent is in a column without a name (write AS name)")
        return expression.text
    name, args = expression.name, [_written(each) for each in expression.args]
    if name in _INFIX:
        return f"({args[0]} {_INFIX[name]} {args[1]})"
    if name in _BEFORE:
        return f"({_BEFORE[name]} {args[0]})"
    if name in _BEHIND:
        return f"({args[0]} {_BEHIND[name]})"
    if name == "in":
        return f"({args[0]} IN ({', '.join(args[1:])}))"
    if name.startswith("cast "):
        return f"CAST({args[0]} AS {_type_name(name)})"
    if name == "count" and not args:
        return "count(1)"
    if not name.isidentifier() or name in ("between", "like"):
        raise NeedsSpark("an expression is a column without a name (write AS name)")
    return f"{name}({'DISTINCT ' if expression.is_distinct else ''}{', '.join(args)})"


def _type_name(cast: str) -> str:
    kind = cast.removeprefix("cast ")
    return {"integer": "INT", "long": "BIGINT"}.get(kind, kind.upper())
