"""Simple queries, understood without Spark: columns, and comparisons of columns with literals.

    SELECT * | column [AS name], ... FROM topic [AS name] [WHERE condition]

A condition is a comparison, BETWEEN, IN, LIKE with an end open, IS NULL, a BOOLEAN column, or AND, OR and NOT of them.
Each of these has only one meaning, in any SQL: columns are copied, and compared with literals of their own type
(decision 53). Whatever could mean something else to Spark (a cast, a function, a keyword, a literal that does not fit)
is not handled here but left to Spark.

Invariant: the analysis made here is the one that Spark would make: the same columns, types and rows. The only error
raised here, an unknown column, has Spark's wording.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.facts import Facts
from barnabas.streams.query.growth import Bound, together
from barnabas.streams.query.parts import END, PARTS, UNREADABLE, arrow_rows, no_column, quoted
from barnabas.streams.query.reading import options_of
from barnabas.streams.query.simple import Simple
from barnabas.streams.schema import parse_ddl
from barnabas.streams.schema.ddl import type_text
from barnabas.streams.source.typed import parser_of
from barnabas.streams.source.where import Condition
from barnabas.streams.wal import WalError
from barnabas.wire.queries.plan import Values
from barnabas.wire.streams.tokens import NUMBER, QUOTED, STRING, WORD, SyntaxProblem, Token, string_value, tokens

#: Longer ones are left to Spark, which has its own limits.
_MAX_TOKENS, _MAX_NESTING = 500, 20
#: Words that, somewhere in such a query, mean something else to Spark's parser than in backquotes.
WORDS = frozenset(
    """
    ALL AND ANTI AS BETWEEN CASE CAST CLUSTER COLLATE CROSS CURRENT_PATH DISTINCT DISTRIBUTE DIV ELSE END ESCAPE EXCEPT
    EXISTS FALSE FOR FROM FULL GROUP HAVING ILIKE IN INNER INTERSECT INTERVAL IS JOIN LATERAL LEFT LIKE LIMIT MAP MINUS
    NATURAL NOT NULL OFFSET ON OR ORDER PIVOT QUALIFY REDUCE REGEXP RIGHT RLIKE SELECT SEMI SETMINUS SORT STREAM TABLE
    TABLESAMPLE THEN TRANSFORM TRUE UNION UNPIVOT USING VALUES WHEN WHERE WINDOW WITH
    """.split()  # noqa: SIM905
)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHOLE = re.compile(r"\d{1,19}")
_FRACTION = re.compile(r"\d{1,15}\.\d{1,15}")
_EXPONENT = re.compile(r"\d{1,15}(?:\.\d{1,15})?[eE][+-]?\d{1,3}")
_EXACT_IN_DOUBLE = 1 << 53
_COMPARISONS = {
    "=": "EqualTo",
    "==": "EqualTo",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
}
_NOT_EQUAL = ("<>", "!=")
_FLIPPED = {
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "EqualTo": "EqualTo",
}
#: Parts of a record that a result cannot set: there, they are ordinary columns.
_NEVER_SET = ("_topic", "_partition", "_offset")


class Name(NamedTuple):
    """A column as named in a query: one of the topic, perhaps under the topic's alias in the query."""

    name: str
    of: str = ""

    @property
    def written(self) -> str:
        """The name as written in the query, without quotes."""
        return f"{self.of}.{self.name}" if self.of else self.name


class Literal(NamedTuple):
    """A number, text or boolean; `is_whole` for a number without fraction and exponent."""

    value: int | float | str | bool
    is_whole: bool = False


class Test(NamedTuple):
    """A condition on a column or on other conditions. Kinds are those of `Condition`, and `Is` for a true column."""

    kind: str
    column: Name | None = None
    literals: tuple[Literal, ...] = ()
    parts: tuple[Test, ...] = ()


class Asked(NamedTuple):
    """A query as written: its source, the source's alias, columns with their names, and the condition."""

    source: str
    alias: str
    chosen: tuple[tuple[Name, str], ...] | None  # None for *
    condition: Test | None


class _UnknownError(Exception):
    """Only Spark can tell."""


def parse(query: str) -> Asked | None:
    """A query, if it has the shape that is understood here. Its columns may not exist."""
    try:
        found = tokens(query)
        if len(found) > _MAX_TOKENS:
            return None
        return _Parser(found).query()
    except (SyntaxProblem, _UnknownError):
        return None


def facts(query: str, source: str, values: Values) -> Facts | None:
    """The facts about a query over a source with such values; None if only Spark can tell.

    Raises QueryError for a query with columns that the source does not have.
    """
    asked = parse(query)
    if asked is None or asked.source != source:
        return None
    try:
        return _Analysis(asked, _columns(values)).facts()
    except _UnknownError:
        return None


def columns(query: str, source: str, values: pa.Schema, hidden: Collection[str] = ()) -> dict[str, pa.DataType] | None:
    """The columns of a query's results over a source with these typed columns; None if only Spark can tell.

    It may name all parts of a record except those that are `hidden`.
    """
    asked = parse(query)
    if asked is None or asked.source != source:
        return None
    try:
        return _Analysis(asked, values).columns(hidden)
    except (QueryError, _UnknownError):
        return None


def typed_columns(values: Values) -> pa.Schema | None:
    """The typed columns of a source; None if only Spark can tell."""
    try:
        return _columns(values)
    except _UnknownError:
        return None


def _columns(values: Values) -> pa.Schema:
    """The typed columns of a source, with Spark's types."""
    if values.format == "raw" or not values.schema:
        return pa.schema([])
    try:
        found = parse_ddl(values.schema)
        parser_of(options_of(values), found)
    except WalError:
        raise _UnknownError from None
    lower = [name.lower() for name in found.names]
    plain = all(name.isascii() and "." not in name and name.strip() for name in found.names)
    if not plain or len(set(lower)) < len(lower) or not {*PARTS, UNREADABLE, END}.isdisjoint(lower):
        raise _UnknownError
    if any(not _is_known_word(name) for name in _bare_names(values.schema)):
        raise _UnknownError
    return found


def _bare_names(schema: str) -> Iterator[str]:
    """The words of a schema outside backquotes."""
    yield from re.findall(r"[A-Za-z0-9_]+", re.sub(r"`(?:[^`]|``)*`", " ", schema))


def _is_known_word(word: str) -> bool:
    return word.isdecimal() or _PLAIN_NAME.fullmatch(word) is not None


class _Parser:
    """Recursive descent over the tokens. Raises _UnknownError for any other shape."""

    def __init__(self, found: Sequence[Token]) -> None:
        self._tokens, self._at, self._depth = found, 0, 0

    def query(self) -> Asked:
        self._expect("SELECT")
        chosen = None if self._takes("*") else tuple(self._chosen())
        self._expect("FROM")
        source = self._name()
        alias = source
        if self._takes("AS") or (not self._is_over() and not self._says("WHERE")):
            alias = self._name()
        condition = self._either() if self._takes("WHERE") else None
        if not self._is_over():
            raise _UnknownError
        return Asked(source, alias, chosen, condition)

    def _chosen(self) -> Iterator[tuple[Name, str]]:
        while True:
            column = self._column()
            name = column.name
            if self._takes("AS") or not self._says(",", "FROM"):
                name = self._name()
            yield column, name
            if not self._takes(","):
                return

    # --- conditions ---------------------------------------------------------------------------------------------------

    def _either(self) -> Test:
        parts = [self._both()]
        while self._takes("OR"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Test("Or", parts=tuple(parts))

    def _both(self) -> Test:
        parts = [self._negated()]
        while self._takes("AND"):
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else Test("And", parts=tuple(parts))

    def _negated(self) -> Test:
        self._depth += 1
        if self._depth > _MAX_NESTING:
            raise _UnknownError
        found = _not(self._negated()) if self._takes("NOT") else self._test()
        self._depth -= 1
        return found

    def _test(self) -> Test:
        if self._takes("("):
            found = self._either()
            self._expect(")")
            return found
        if self._is_literal():
            literal = self._literal()
            return self._compared(self._comparison(), literal, flipped=True)
        column = self._column()
        if self._takes("IS"):
            is_not = self._takes("NOT")
            self._expect("NULL")
            return Test("IsNotNull" if is_not else "IsNull", column)
        if self._takes("NOT"):
            return _not(self._of_words(column))
        if self._says("IN", "LIKE", "BETWEEN"):
            return self._of_words(column)
        if self._is_over() or self._says("AND", "OR", ")"):
            return Test("Is", column)
        kind = self._comparison()
        return self._compared(kind, self._literal(), column)

    def _of_words(self, column: Name) -> Test:
        """A test after a column, with or without NOT before it."""
        if self._takes("BETWEEN"):
            lo = self._literal()
            self._expect("AND")
            hi = self._literal()
            return Test(
                "And", parts=(Test("GreaterThanOrEqual", column, (lo,)), Test("LessThanOrEqual", column, (hi,)))
            )
        if self._takes("IN"):
            self._expect("(")
            literals = [self._literal()]
            while self._takes(","):
                literals.append(self._literal())
            self._expect(")")
            return Test("In", column, tuple(literals))
        self._expect("LIKE")
        token = self._take()
        if token.kind != STRING:
            raise _UnknownError
        return _like(column, string_value(token))

    def _comparison(self) -> str:
        token = self._take()
        if token.text in _NOT_EQUAL:
            return "<>"
        if token.text not in _COMPARISONS:
            raise _UnknownError
        return _COMPARISONS[token.text]

    def _compared(self, kind: str, literal: Literal, column: Name | None = None, *, flipped: bool = False) -> Test:
        column = column or self._column()
        if kind == "<>":
            return _not(Test("EqualTo", column, (literal,)))
        return Test(_FLIPPED[kind] if flipped else kind, column, (literal,))

    # --- names and literals -------------------------------------------------------------------------------------------

    def _column(self) -> Name:
        name = self._name()
        return Name(self._name(), name) if self._takes(".") else Name(name)

    def _name(self) -> str:
        token = self._take()
        if token.kind == QUOTED:
            name = token.name
        elif token.kind == WORD and _PLAIN_NAME.fullmatch(token.text) and token.text.upper() not in WORDS:
            name = token.text
        else:
            raise _UnknownError
        if not name.isascii() or not name.strip():
            raise _UnknownError
        return name

    def _is_literal(self) -> bool:
        return not self._is_over() and (
            self._tokens[self._at].kind in (NUMBER, STRING) or self._says("-", "TRUE", "FALSE")
        )

    def _literal(self) -> Literal:
        if self._takes("TRUE"):
            return Literal(True)
        if self._takes("FALSE"):
            return Literal(False)
        sign = -1 if self._takes("-") else 1
        token = self._take()
        if token.kind == STRING and sign == 1:
            return Literal(string_value(token))
        if token.kind == NUMBER:
            return _number(token.text, sign)
        raise _UnknownError

    # --- tokens -------------------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        return self._at == len(self._tokens)

    def _take(self) -> Token:
        if self._is_over():
            raise _UnknownError
        self._at += 1
        return self._tokens[self._at - 1]

    def _says(self, *words: str) -> bool:
        return not self._is_over() and self._tokens[self._at].says(*words)

    def _takes(self, *words: str) -> bool:
        found = self._says(*words)
        self._at += found
        return found

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            raise _UnknownError


def _not(test: Test) -> Test:
    return Test("Not", parts=(test,))


def _number(text: str, sign: int) -> Literal:
    if _WHOLE.fullmatch(text):
        return Literal(sign * int(text), is_whole=True)
    if _FRACTION.fullmatch(text) or _EXPONENT.fullmatch(text):
        value = float(text)
        if 0 < value < float("inf") or (sign == 1 and not text.strip("0.")):  # Spark's literal has no negative zero
            return Literal(sign * value)
    raise _UnknownError


def _like(column: Name, pattern: str) -> Test:
    """The test for a LIKE, if it only concerns the beginning, the end or a part of a text."""
    text = pattern.strip("%")
    ends = pattern.startswith("%"), pattern.endswith("%")
    if not text or "%" in text or "_" in text or "\\" in text or len(pattern) - len(text) > sum(ends):
        raise _UnknownError
    kinds = {
        (False, False): "EqualTo",
        (False, True): "StringStartsWith",
        (True, False): "StringEndsWith",
        (True, True): "StringContains",
    }
    return Test(kinds[ends], column, (Literal(text),))


class _Analysis:
    """A query over existing columns. Raises _UnknownError."""

    def __init__(self, asked: Asked, values: pa.Schema) -> None:
        self._asked, self._values = asked, values
        self._rows = arrow_rows(values, {*values.names, *PARTS})
        #: The columns by their lower-case names, as Spark finds them.
        self._own = {field.name.lower(): field for field in self._rows if field.name not in (UNREADABLE, END)}

    def facts(self) -> Facts:
        """The facts about it. Raises QueryError for a missing column."""
        self._check_names()
        outputs = self._outputs()
        condition = self._asked.condition
        tests = condition.parts if condition is not None and condition.kind == "And" else (condition,)
        conditions = tuple(self._condition(test) for test in tests if test is not None)
        plain = {name: column for name, column in outputs.items() if name not in PARTS or name in _NEVER_SET}
        if ("_value" in outputs) == bool(plain):
            raise _UnknownError
        for name, column in outputs.items():
            self._check_output(name, column)
        key, timestamp, value = (outputs.get(part, part) for part in ("_key", "_timestamp", "_value"))
        simple = Simple(conditions, key, timestamp, "" if plain else value, tuple(plain.items()))
        if not simple.suits(self._rows):
            raise _UnknownError
        needed = {*outputs.values(), *_columns_of(conditions), "_headers"}
        needed |= {"_key", "_timestamp"} - outputs.keys()
        schema = ddl([(name, self._rows.field(column).type) for name, column in plain.items()])
        kind = "json" if plain else "raw"
        return Facts(frozenset(needed), kind, schema, conditions, simple, self._bound(), self._values)

    def columns(self, hidden: Collection[str]) -> dict[str, pa.DataType]:
        """The types of the results' columns. Raises like `facts`."""
        self._check_names()
        outputs = self._outputs()
        condition = () if self._asked.condition is None else (self._condition(self._asked.condition),)
        if not {*outputs.values(), *_columns_of(condition)}.isdisjoint(hidden):
            raise _UnknownError
        return {name: self._rows.field(column).type for name, column in outputs.items()}

    def _check_names(self) -> None:
        """Raises QueryError for unqualified names where Spark's analysis would."""
        named = [*(column for column, _ in self._asked.chosen or ()), *_named(self._asked.condition)]
        for name in sorted({column.name for column in named if not column.of}):
            if name.lower() not in self._own:
                if name in (UNREADABLE, END) or "." in name:
                    raise _UnknownError
                raise QueryError(no_column(f"`{name}`", self._values.names))

    def _outputs(self) -> dict[str, str]:
        """The result's columns, by their names there."""
        if self._asked.chosen is None:
            return {name: name for name in self._values.names or ["_value"]}
        found: dict[str, str] = {}
        for column, name in self._asked.chosen:
            if name in found or name in (UNREADABLE, END, "_headers"):
                raise _UnknownError
            found[name] = self._column(column).name
        return found

    def _column(self, named: Name) -> pa.Field:
        if named.of and named.of.lower() != self._asked.alias.lower():
            raise _UnknownError
        if named.name.lower() not in self._own:
            raise _UnknownError
        return self._own[named.name.lower()]

    def _check_output(self, name: str, column: str) -> None:
        """A column that sets a part of a record must have its type."""
        kind = self._rows.field(column).type
        if name in ("_key", "_value") and not pa.types.is_string(kind):
            raise _UnknownError
        if name == "_timestamp" and kind != self._rows.field("_timestamp").type:
            raise _UnknownError

    def _condition(self, test: Test) -> Condition:
        if test.parts:
            parts = tuple(self._condition(part) for part in test.parts)
            return Condition(test.kind, parts=parts) if test.kind == "Not" else _paired(test.kind, parts)
        assert test.column is not None
        field = self._column(test.column)
        if test.kind == "Is":
            if not pa.types.is_boolean(field.type):
                raise _UnknownError
            return Condition("EqualTo", field.name, True)
        values = tuple(_value(literal, field.type) for literal in test.literals)
        if test.kind.startswith("String") and not pa.types.is_string(field.type):
            raise _UnknownError
        if pa.types.is_boolean(field.type) and test.kind not in ("EqualTo", "IsNull", "IsNotNull"):
            raise _UnknownError
        value: Any = None if not values else values if test.kind == "In" else values[0]
        return Condition(test.kind, field.name, value)

    def _bound(self) -> Bound:
        return together([Bound({column.written: 1}, 0) for column, _ in self._asked.chosen or ()])


def _value(literal: Literal, kind: pa.DataType) -> bool | int | float | str:
    """A literal as a value of its column's type: one that Spark casts without changing it."""
    value = literal.value
    if isinstance(value, bool):
        fits = pa.types.is_boolean(kind)
    elif isinstance(value, str):
        fits = pa.types.is_string(kind)
    elif pa.types.is_floating(kind):
        fits = kind == pa.float64() and (not literal.is_whole or abs(value) <= _EXACT_IN_DOUBLE)
        value = float(value)
    else:
        bits = kind.bit_width if pa.types.is_integer(kind) else 0
        fits = bool(bits) and isinstance(value, int) and -(1 << bits - 1) <= value < 1 << bits - 1
    if not fits:
        raise _UnknownError
    return value


def _paired(kind: str, parts: Sequence[Condition]) -> Condition:
    """The conditions combined two by two, as they are evaluated."""
    found = parts[0]
    for part in parts[1:]:
        found = Condition(kind, parts=(found, part))
    return found


def _named(test: Test | None) -> Iterator[Name]:
    if test is None:
        return
    if test.column is not None:
        yield test.column
    for part in test.parts:
        yield from _named(part)


def _columns_of(conditions: Sequence[Condition]) -> Iterator[str]:
    for one in conditions:
        if one.column:
            yield one.column
        yield from _columns_of(one.parts)


def ddl(columns: Sequence[tuple[str, pa.DataType]]) -> str:
    """The schema of results, with Spark's type names."""
    return ", ".join(f"{quoted(name)} {type_text(kind).lower()}" for name, kind in columns)
