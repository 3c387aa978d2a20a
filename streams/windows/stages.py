"""Splits a stream's SELECT into three: over the records, over a window, over the window's results.

    SELECT device, 2 * avg(temp + 1) AS t FROM sensors WHERE temp > 0 PARTITION BY device INTERVAL(10s) HAVING t > 5

    inputs    SELECT (temp + 1) AS `__x0`, (device) AS `device` FROM sensors WHERE temp > 0
    window    avg(`__x0`) AS `__a0`, by window and `device`
    outputs   SELECT device, 2 * `__a0` AS `t` FROM `__windows` WHERE ...

Inputs and outputs have the form of a query topic's SELECT and pass through the same checks; the aggregates in the
middle are called by this package. A text is cut only between tokens, so nothing in quotes is taken for a call.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from barnabas.streams.query.errors import QueryError
from barnabas.streams.windows.aggregates import AGGREGATES, INSTEAD
from barnabas.wire.streams.clauses import Clauses, Item
from barnabas.wire.streams.tokens import NUMBER, QUOTED, STRING, WORD, Token, closing, joined, problem, split_at

#: The relation with the windows' results in the outputs' text.
WINDOWS = "__windows"
#: Columns of a window's result besides those of PARTITION BY. The last one is in milliseconds.
START, END, DURATION = "_wstart", "_wend", "_wduration"
#: The input columns that a state or event window uses.
MARK = "__mark"
_RESERVED = (START, END, DURATION, "_key", "_timestamp", "_value", "_headers", "_offset", "_partition", "_topic")


class Call(msgspec.Struct, frozen=True):
    """An aggregate: its name, its inputs' columns, the literal arguments after them, and the column of its result."""

    function: str
    inputs: tuple[str, ...]
    literals: tuple[float, ...]
    column: str


class Stages(msgspec.Struct, frozen=True):
    """The three parts of a stream's SELECT."""

    inputs: str
    calls: tuple[Call, ...]
    keys: tuple[str, ...]  # columns of PARTITION BY
    outputs: str
    columns: tuple[tuple[str, str], ...]  # the calls' arguments: expressions over a record, and their names


def stages_of(clauses: Clauses) -> Stages:
    """Split a stream into stages. Raises SyntaxProblem or QueryError for what a window cannot have."""
    return _Maker(clauses).stages()


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return "`" + name.replace("`", "``") + "`"


class _Maker:
    def __init__(self, clauses: Clauses) -> None:
        self._clauses = clauses
        self._calls: dict[tuple[str, tuple[str, ...]], Call] = {}
        self._inputs: dict[str, str] = {}

    def stages(self) -> Stages:
        clauses = self._clauses
        names = [item.name for item in clauses.partition]
        for item in clauses.partition:
            if item.name.lower() in _RESERVED or item.name.startswith("__"):
                raise QueryError(f"PARTITION BY gives a column {item.name}, which is a name of our own: use AS")
        if len({name.lower() for name in names}) != len(names):
            raise QueryError("PARTITION BY has two columns of one name: use AS")
        selected = [f"{self._output(item.tokens)} AS {quoted(item.name)}" for item in clauses.items]
        selected += self._tags(names)
        if clauses.key:
            selected.append(f"CAST({self._output(clauses.key)} AS STRING) AS `_key`")
        outputs = f"SELECT {', '.join(selected)} FROM {quoted(WINDOWS)}"
        if clauses.having:
            outputs += f" WHERE {self._output(clauses.having)}"
        columns = [f"({text}) AS {quoted(name)}" for text, name in self._inputs.items()]
        columns += [f"({item.text}) AS {quoted(item.name)}" for item in clauses.partition]
        columns.append(f"{quoted(clauses.time)} AS `__time`")
        columns += [f"({joined(mark)}) AS {quoted(MARK + str(number))}" for number, mark in enumerate(clauses.marks)]
        inputs = f"SELECT {', '.join(columns)} FROM {quoted(clauses.source)}"
        conditions = [f"({joined(found)})" for found in (clauses.pre_filter, clauses.where) if found]
        if conditions:
            inputs += f" WHERE {' AND '.join(conditions)}"
        return Stages(inputs, tuple(self._calls.values()), tuple(names), outputs, tuple(self._inputs.items()))

    def _tags(self, keys: Sequence[str]) -> list[str]:
        """The items that TAGS adds."""
        known = {name.lower() for name in keys}
        for tag in self._clauses.tags:
            column = tag.tokens[0]
            if column.name.lower() not in known:
                turned = f": write TAGS({tag.name} AS {column.name})" if tag.name.lower() in known else ""
                raise self._wrong(column, f"a tag is a column of PARTITION BY{turned}")
        items = {(item.text.lower(), item.name.lower()) for item in self._clauses.items}
        added = [tag for tag in self._clauses.tags if (tag.text.lower(), tag.name.lower()) not in items]
        return [f"{quoted(tag.tokens[0].name)} AS {quoted(tag.name)}" for tag in added]

    def _output(self, tokens: Sequence[Token]) -> str:
        """An expression over a window: aggregates and grouping expressions are replaced by columns."""
        found: list[str] = []
        at = 0
        while at < len(tokens):
            token = tokens[at]
            following = tokens[at + 1] if at + 1 < len(tokens) else None
            key = self._key_at(tokens, at)
            if key is not None:
                found.append(quoted(key.name))
                at += len(key.tokens)
                continue
            if token.kind in (WORD, QUOTED) and following is not None and following.says("("):
                name = token.name.lower()
                if name in AGGREGATES:
                    end = closing(self._clauses.text, tokens, at + 1)
                    self._check_plain(tokens, end)
                    found.append(quoted(self._call(token, name, tokens[at + 2 : end])))
                    at = end + 1
                    continue
                if name in INSTEAD:
                    raise self._wrong(token, f"the aggregate {name} is not possible in a stream: {INSTEAD[name]}")
            found.append(token.text)
            at += 1
        return " ".join(found)

    def _key_at(self, tokens: Sequence[Token], at: int) -> Item | None:
        """The item of PARTITION BY that begins here, if there is one."""
        if at and tokens[at - 1].says("."):
            return None
        for item in self._clauses.partition:
            part = tokens[at : at + len(item.tokens)]
            if len(part) == len(item.tokens) and all(map(_same, part, item.tokens)):
                return item
        return None

    def _check_plain(self, tokens: Sequence[Token], end: int) -> None:
        following = tokens[end + 1] if end + 1 < len(tokens) else None
        if following is not None and following.says("FILTER", "OVER", "WITHIN", "IGNORE", "RESPECT"):
            raise self._wrong(following, f"{following.text.upper()} is not possible behind an aggregate: use CASE WHEN")

    def _call(self, token: Token, name: str, inside: Sequence[Token]) -> str:
        """The column of an aggregate's result."""
        if inside and inside[0].says("DISTINCT", "ALL"):
            raise self._wrong(inside[0], f"{inside[0].text.upper()} is not possible here: use approx_count_distinct")
        for number, inner in enumerate(inside[:-1]):
            if inner.kind in (WORD, QUOTED) and inside[number + 1].says("(") and inner.name.lower() in AGGREGATES:
                raise self._wrong(inner, "an aggregate in an aggregate is not possible")
        parts = split_at(inside, ",") if inside else []
        wanted = AGGREGATES[name]
        if len(parts) != wanted.arguments or not all(parts):
            raise self._wrong(token, f"{name} takes {wanted.arguments} argument{'s' * (wanted.arguments > 1)}")
        literals = tuple(self._literal(name, parts[number]) for number in wanted.literals)
        texts = [joined(part) for number, part in enumerate(parts) if number not in wanted.literals]
        if name == "count" and texts == ["*"]:
            texts = ["1"]
        inputs = tuple(self._inputs.setdefault(text, f"__x{len(self._inputs)}") for text in texts)
        key = name, (*inputs, *map(str, literals))
        if key not in self._calls:
            self._calls[key] = Call(name, inputs, literals, f"__a{len(self._calls)}")
        return self._calls[key].column

    def _literal(self, name: str, part: Sequence[Token]) -> float:
        if len(part) == 1 and part[0].kind == NUMBER:
            try:
                found = float(part[0].text)
            except ValueError:
                found = -1.0
            if 0 <= found <= 1:
                return found
        raise self._wrong(part[0], f"{name}: expected a number from 0 to 1")

    def _wrong(self, token: Token, what: str) -> QueryError:
        return QueryError(str(problem(self._clauses.text, token.start, what)))


def _same(one: Token, other: Token) -> bool:
    if one.kind == STRING or other.kind == STRING:
        return one.text == other.text
    return one.name.lower() == other.name.lower()
