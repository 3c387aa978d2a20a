"""How large the results of a query may become, from its text alone.

A function like `repeat` makes gigabytes from one byte, and Spark evaluates constant expressions while it plans. So each
expression gets a bound before Spark sees it: at most `grows` times each column that it names, plus `adds` bytes. A call
is refused if its bound is too large, or unknown because the argument that decides it is not a literal.

Invariant: no expression of an accepted query makes more than MAX_GROWS times its record and MAX_ADDS bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.functions import FIXED, FIXED_EXPRESSIONS

#: Limits of one expression for a record: this many times its bytes, plus this many bytes. All results together may have
#: four times as much.
MAX_GROWS, MAX_ADDS = 16, 256 << 10
_MAX_DIGITS, _FEW = 100, 8


class Node(msgspec.Struct):
    """A parsed expression: its class, and the name of a function or column or the value of a literal."""

    kind: str
    name: str = ""
    value: Any = None
    children: list[Node] = []


class Bound(NamedTuple):
    """The most bytes of a value: a multiple of each column's (`columns`), plus a constant (`adds`)."""

    columns: dict[str, float]
    adds: float

    @property
    def grows(self) -> float:
        """How many times the record: columns are parts of it, and do not overlap."""
        return max(self.columns.values(), default=0)

    def times(self, factor: float, adds: float = 0) -> Bound:
        """A bound `factor` times as large, plus `adds` bytes."""
        return Bound({name: count * factor for name, count in self.columns.items()}, self.adds * factor + adds)


def together(bounds: Sequence[Bound]) -> Bound:
    """The bound of values side by side."""
    columns: dict[str, float] = {}
    for bound in bounds:
        for name, count in bound.columns.items():
            columns[name] = columns.get(name, 0) + count
    return Bound(columns, sum(bound.adds for bound in bounds))


def either(bounds: Sequence[Bound]) -> Bound:
    """The bound of one of these values."""
    names = {name for bound in bounds for name in bound.columns}
    columns = {name: max(bound.columns.get(name, 0) for bound in bounds) for name in names}
    return Bound(columns, max((bound.adds for bound in bounds), default=0))


def bound_of(node: Node) -> Bound:
    """The bound of an expression. Raises QueryError if it is too large or unknown."""
    of_children = [bound_of(child) for child in node.children]
    if node.kind == "Literal":
        return Bound({}, 0 if node.value is None else len(str(node.value).encode()))
    if node.kind == "UnresolvedAttribute":
        return Bound({node.name: 1}, 0)
    if node.kind == "UnresolvedNamedLambdaVariable":
        return Bound({_ELEMENT: 1}, 0)
    if node.kind == "LambdaFunction":  # its body is followed by its variables
        return of_children[0]
    called = node.name.lower() if node.kind == "UnresolvedFunction" else _FUNCTION_OF.get(node.kind, "")
    rule = _RULES.get(called)
    found = rule(called, node, of_children) if rule is not None else together(of_children)
    if called in FIXED or node.kind in FIXED_EXPRESSIONS:
        found = Bound({}, _FEW)
    if found.grows > MAX_GROWS or found.adds > MAX_ADDS:
        raise QueryError(
            f"{called or node.kind}: its result may have {found.adds:,.0f} bytes and {found.grows:,.0f} times its "
            f"record: at most {MAX_ADDS:,} bytes and {MAX_GROWS} times the record are possible"
        )
    return found


_ELEMENT = "(element)"
_FUNCTION_OF = {"StringLocate": "position", "CaseWhen": "when"}
_Rule = Callable[[str, Node, list[Bound]], Bound]


def _number(called: str, node: Node, at: int, default: int | None = None) -> int:
    """An argument that must be a literal number. Raises QueryError."""
    if at >= len(node.children) and default is not None:
        return default
    found = node.children[at] if at < len(node.children) else Node("")
    negative = found.kind == "UnaryMinus"
    if negative:
        (found,) = found.children
    try:
        return (-1 if negative else 1) * int(str(found.value)) if found.kind == "Literal" else int("")
    except ValueError:
        raise QueryError(f"{called}: its argument {at + 1} must be a number, not an expression") from None


def _text(called: str, node: Node, at: int, default: str | None = None) -> str:
    """An argument that must be a literal text. Raises QueryError."""
    if at >= len(node.children) and default is not None:
        return default
    if at < len(node.children) and node.children[at].kind == "Literal":
        return str(node.children[at].value)
    raise QueryError(f"{called}: its argument {at + 1} must be a text in quotes, not an expression")


def _factor(factor: float) -> _Rule:
    return lambda called, node, bounds: together(bounds).times(factor)


def _repeated(called: str, node: Node, bounds: list[Bound]) -> Bound:
    times = max(_number(called, node, 1), 0)
    return bounds[0].times(times, 8 * times if called == "array_repeat" else 0)


def _spaces(called: str, node: Node, bounds: list[Bound]) -> Bound:
    return Bound({}, max(_number(called, node, 0), 0))


def _padded(called: str, node: Node, bounds: list[Bound]) -> Bound:
    return Bound(bounds[0].columns, max(_number(called, node, 1), 0) * 4 + together(bounds).adds)


def _replaced(called: str, node: Node, bounds: list[Bound]) -> Bound:
    size = len(_text(called, node, 2, "").encode())
    wanted = len(_text(called, node, 1).encode())
    return bounds[0].times(max(1.0, size / max(wanted, 1)), size)


def _pattern_replaced(called: str, node: Node, bounds: list[Bound]) -> Bound:
    text = _text(called, node, 2)
    return bounds[0].times(1 + len(text.encode()) + text.count("$"), len(text.encode()))


def _joined(called: str, node: Node, bounds: list[Bound]) -> Bound:
    between = 0 if called == "concat_ws" else 1
    sizes = [len(_text(called, node, at, "").encode()) for at in ([between] if between == 0 else [1, 2])]
    return together(bounds).times(1 + sum(sizes), len(bounds) * sum(sizes))


def _by_element(called: str, node: Node, bounds: list[Bound]) -> Bound:
    """The bound of `transform`: that of one element, times at most as many elements as the array has bytes."""
    return bounds[0].times(bounds[1].columns.get(_ELEMENT, 0) + bounds[1].adds + 1)


def _first(called: str, node: Node, bounds: list[Bound]) -> Bound:
    return bounds[0]


def _one_of(called: str, node: Node, bounds: list[Bound]) -> Bound:
    return either(bounds)


def _rounded(called: str, node: Node, bounds: list[Bound]) -> Bound:
    if abs(_number(called, node, 1, 0)) > _MAX_DIGITS:
        raise QueryError(f"{called}: at most {_MAX_DIGITS} digits are possible")
    return together(bounds)


def _sought(at: int) -> _Rule:
    """A searched text must be short, because it is compared at every position."""

    def rule(called: str, node: Node, bounds: list[Bound]) -> Bound:
        _text(called, node, at)
        return together(bounds)

    return rule


_RULES: dict[str, _Rule] = {
    "repeat": _repeated, "array_repeat": _repeated, "space": _spaces, "lpad": _padded, "rpad": _padded,
    "replace": _replaced, "regexp_replace": _pattern_replaced, "concat_ws": _joined, "array_join": _joined,
    "transform": _by_element, "filter": _first, "exists": _first, "forall": _first,
    "hex": _factor(2), "bin": _factor(1), "base64": _factor(1.5), "url_encode": _factor(3), "to_json": _factor(6),
    "quote": _factor(2), "translate": _factor(4), "encode": _factor(4), "split": _factor(4),
    **dict.fromkeys(
        ("when", "if", "coalesce", "nvl", "nvl2", "ifnull", "nullif", "nanvl", "greatest", "least", "elt", "nullifzero",
         "zeroifnull", "element_at", "try_element_at", "get"),
        _one_of,
    ),
    **dict.fromkeys(("round", "bround", "ceil", "ceiling", "floor", "format_number"), _rounded),
    **dict.fromkeys(("contains", "instr", "split_part", "substring_index"), _sought(1)),
    **dict.fromkeys(("locate", "position"), _sought(0)),
}  # fmt: skip
