"""Parses the text of a query into a tree.

    SELECT [DISTINCT] * | expression [AS name], ... FROM topic [AS name] [WHERE condition] [GROUP BY expression, ...]
    [HAVING condition] [ORDER BY expression [ASC | DESC] [NULLS FIRST | LAST], ...] [LIMIT n] [OFFSET n]

Operators bind as in Spark's grammar. Any other text raises NeedsSpark: a keyword in the place of a name, a literal of
another type, anything that is nested too deeply.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.streams.query.plain import WORDS
from barnabas.streams.select.errors import NeedsSpark
from barnabas.wire.streams.cursor import Cursor
from barnabas.wire.streams.tokens import NUMBER, QUOTED, STRING, WORD, SyntaxProblem, string_value

#: Longer and deeper queries are left to Spark, which has its own limits.
MAX_TOKENS, _MAX_DEPTH = 2000, 50
_WHOLE = re.compile(r"\d{1,19}")
_FRACTION = re.compile(r"\d{1,15}\.\d{1,15}")
_EXPONENT = re.compile(r"\d{1,15}(?:\.\d{1,15})?[eE][+-]?\d{1,3}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMPARISONS = ("=", "==", "<", "<=", ">", ">=", "<>", "!=")
#: The types of a number without a suffix letter.
INT, BIGINT, DECIMAL, DOUBLE, TEXT, TRUTH = "int", "bigint", "decimal", "double", "string", "boolean"


@dataclass(frozen=True)
class Column:
    """A column as written: one of the topic, perhaps with the topic's alias in the query."""

    name: str
    of: str = ""


@dataclass(frozen=True)
class Literal:
    """A number, text or boolean; `text` is how Spark writes it in the name of a column."""

    kind: str
    value: int | float | str | bool
    text: str


@dataclass(frozen=True)
class Call:
    """An operator or function, with its name in lower case. `count(*)` has no arguments."""

    name: str
    args: tuple[Expression, ...]
    is_distinct: bool = False


Expression = Column | Literal | Call


class Item(NamedTuple):
    """A part of the SELECT list: an expression, or None for *; and its alias, if it has one."""

    expression: Expression | None
    name: str | None


class Order(NamedTuple):
    """A part of ORDER BY."""

    expression: Expression
    descending: bool
    nulls_first: bool


class Query(NamedTuple):
    """A query as written."""

    source: str  # empty without FROM
    alias: str
    is_distinct: bool
    items: tuple[Item, ...]
    condition: Expression | None
    groups: tuple[Expression, ...]
    having: Expression | None
    order: tuple[Order, ...]
    limit: int | None
    offset: int


def parse(text: str) -> Query:
    """A query of a shape that is understood here. Raises NeedsSpark for any other."""
    try:
        parser = _Parser(text)
        if len(parser.tokens) > MAX_TOKENS:
            raise NeedsSpark("it is long")
        return parser.query()
    except SyntaxProblem as error:
        raise NeedsSpark(str(error)) from None


def conjuncts(condition: Expression | None) -> list[Expression]:
    """The conditions that must all be met."""
    if condition is None:
        return []
    if isinstance(condition, Call) and condition.name == "and":
        return [part for each in condition.args for part in conjuncts(each)]
    return [condition]


class _Parser(Cursor):
    """Recursive descent. Raises NeedsSpark and SyntaxProblem, which mean the same here."""

    _depth = 0

    def query(self) -> Query:
        self.expect("SELECT")
        is_distinct = self.takes("DISTINCT")
        items = self._items()
        if self.peek().kind == "end" and not is_distinct:
            return Query("", "", False, tuple(items), None, (), None, (), None, 0)
        self.expect("FROM")
        source = alias = self._source()
        if self.takes("AS") or self._is_name():
            alias = self._name()
        condition = self._expression() if self.takes("WHERE") else None
        groups = self._list() if self.takes("GROUP", "BY") else ()
        having = self._expression() if self.takes("HAVING") else None
        order = self._order() if self.takes("ORDER", "BY") else ()
        limit = self._count() if self.takes("LIMIT") else None
        offset = self._count() if self.takes("OFFSET") else 0
        if self.peek().kind != "end":
            raise self._unknown()
        return Query(source, alias, is_distinct, tuple(items), condition, groups, having, order, limit, offset)

    def _unknown(self) -> NeedsSpark:
        token = self.peek()
        return NeedsSpark(f"it has {token.text or 'an end'} at character {token.start + 1}")

    def _items(self) -> list[Item]:
        found = []
        while True:
            if self.takes("*"):
                found.append(Item(None, None))
            else:
                expression = self._expression()
                name = self._name() if self.takes("AS") or self._is_name() else None
                found.append(Item(expression, name))
            if not self.takes(","):
                return found

    def _list(self) -> tuple[Expression, ...]:
        found = [self._expression()]
        while self.takes(","):
            found.append(self._expression())
        return tuple(found)

    def _order(self) -> tuple[Order, ...]:
        found = []
        while True:
            expression = self._expression()
            descending = self.takes("DESC")
            if not descending:
                self.takes("ASC")
            nulls_first = not descending
            if self.takes("NULLS"):
                nulls_first = self.expect("FIRST", "LAST").says("FIRST")
            found.append(Order(expression, descending, nulls_first))
            if not self.takes(","):
                return tuple(found)

    def _count(self) -> int:
        token = self.take()
        if token.kind != NUMBER or not re.fullmatch(r"\d{1,9}", token.text):
            raise NeedsSpark("its LIMIT or OFFSET is not a plain number")
        return int(token.text)

    def _source(self) -> str:
        if self.peek(1).says("("):
            raise NeedsSpark("it reads from a function or a subquery")
        return self._name()

    # --- expressions --------------------------------------------------------------------------------------------------

    def _expression(self) -> Expression:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise NeedsSpark("it is nested deeply")
        parts = [self._both()]
        while self.takes("OR"):
            parts.append(self._both())
        self._depth -= 1
        return _joined("or", parts)

    def _both(self) -> Expression:
        parts = [self._negated()]
        while self.takes("AND"):
            parts.append(self._negated())
        return _joined("and", parts)

    def _negated(self) -> Expression:
        turns = 0
        while self.takes("NOT"):
            turns += 1
            if turns > _MAX_DEPTH:
                raise NeedsSpark("it is nested deeply")
        found = self._predicate()
        for _ in range(turns):
            found = Call("not", (found,))
        return found

    def _predicate(self) -> Expression:
        left = self._sum()
        token = self.peek()
        if token.says(*_COMPARISONS):
            self.take()
            right = self._sum()
            return _comparison(token.text, left, right)
        if self.takes("IS"):
            is_not = self.takes("NOT")
            self.expect("NULL")
            return Call("is not null" if is_not else "is null", (left,))
        is_not = self.takes("NOT")
        found: Expression
        if self.takes("BETWEEN"):
            lo = self._sum()
            self.expect("AND")
            found = Call("between", (left, lo, self._sum()))
        elif self.takes("IN"):
            self.expect("(")
            options = self._list()
            self.expect(")")
            found = Call("in", (left, *options))
        elif self.takes("LIKE"):
            found = Call("like", (left, self._text()))
            if self.peek().says("ESCAPE"):
                raise self._unknown()
        elif is_not:
            raise self._unknown()
        else:
            return left
        return Call("not", (found,)) if is_not else found

    def _sum(self) -> Expression:
        found = self._product()
        while self.peek().says("+", "-", "||"):
            name = self.take().text
            found = Call("concat" if name == "||" else name, (found, self._product()))
        return found

    def _product(self) -> Expression:
        found = self._signed()
        while self.peek().says("*", "/", "%"):
            name = self.take().text
            found = Call(name, (found, self._signed()))
        return found

    def _signed(self) -> Expression:
        if not self.takes("-"):
            return self._primary()
        if self.peek().kind == NUMBER:
            return _number(self.take().text, -1)
        return Call("negative", (self._nested(self._signed),))

    def _primary(self) -> Expression:
        token = self.peek()
        if self.takes("("):
            found = self._expression()
            self.expect(")")
            return found
        if token.kind == NUMBER:
            return _number(self.take().text, 1)
        if token.kind == STRING:
            return self._text()
        if token.says("TRUE", "FALSE"):
            self.take()
            return Literal(TRUTH, token.says("TRUE"), token.text.lower())
        if token.says("CAST") and self.peek(1).says("("):
            return self._cast()
        if token.says("TIMESTAMP") and self.peek(1).kind == STRING:
            self.take()
            text = self._text()
            return Call("timestamp literal", (text,))
        if token.kind == WORD and self.peek(1).says("("):
            return self._call()
        name = self._name()
        return Column(self._name(), name) if self.takes(".") else Column(name)

    def _nested(self, read: object) -> Expression:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise NeedsSpark("it is nested deeply")
        found: Expression = read()  # type: ignore[operator]
        self._depth -= 1
        return found

    def _cast(self) -> Expression:
        self.take()
        self.expect("(")
        what = self._expression()
        self.expect("AS")
        kind = self.take()
        self.expect(")")
        if kind.kind != WORD:
            raise self._unknown()
        return Call(f"cast {kind.text.lower()}", (what,))

    def _call(self) -> Expression:
        name = self.take().text.lower()
        self.expect("(")
        if name == "count" and self.takes("*"):
            self.expect(")")
            return Call("count", ())
        if self.peek().says(")"):
            raise NeedsSpark(f"the function {name} is Spark's")
        is_distinct = self.takes("DISTINCT")
        args = self._list()
        self.expect(")")
        if self.peek().says("FILTER", "OVER", "IGNORE", "RESPECT", "WITHIN"):
            raise NeedsSpark(f"{name} has {self.peek().text}")
        return Call(name, args, is_distinct)

    # --- names and literals -------------------------------------------------------------------------------------------

    def _text(self) -> Literal:
        token = self.take()
        if token.kind != STRING or self.peek().kind == STRING:
            raise NeedsSpark("it has texts side by side, or none where one is expected")
        value = string_value(token)
        return Literal(TEXT, value, value)

    def _is_name(self) -> bool:
        token = self.peek()
        return token.kind == QUOTED or (token.kind == WORD and token.text.upper() not in WORDS)

    def _name(self) -> str:
        token = self.peek()
        if token.kind == WORD and _NAME.fullmatch(token.text) and token.text.upper() not in WORDS:
            name = token.text
        elif token.kind == QUOTED:
            name = token.name
        else:
            raise self._unknown()
        if not name.isascii() or not name.strip():
            raise NeedsSpark(f"{name!r} is not ASCII")
        self.take()
        return name


def _joined(name: str, parts: Sequence[Expression]) -> Expression:
    """Combine the parts two by two, as Spark does."""
    found = parts[0]
    for part in parts[1:]:
        found = Call(name, (found, part))
    return found


def _comparison(sign: str, left: Expression, right: Expression) -> Expression:
    if sign in ("<>", "!="):
        return Call("not", (Call("=", (left, right)),))
    return Call("=" if sign == "==" else sign, (left, right))


def _number(text: str, sign: int) -> Literal:
    written = f"-{text}" if sign < 0 else text
    if _WHOLE.fullmatch(text):
        whole = sign * int(text)
        if -(1 << 63) <= whole < 1 << 63:
            return Literal(INT if -(1 << 31) <= whole < 1 << 31 else BIGINT, whole, str(whole))
    if _FRACTION.fullmatch(text):
        return Literal(DECIMAL, sign * float(text) + 0.0, written)  # a DECIMAL has no negative zero
    if _EXPONENT.fullmatch(text) and 0 < float(text) < float("inf"):
        return Literal(DOUBLE, sign * float(text), written)
    raise NeedsSpark(f"the number {text} has a type of its own")
