"""Explains a stream's event time to people.

A stream that names none uses the records' own times, even if the values have a time that was perhaps meant.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.wire.streams.clauses import RECORD_TIME, Clauses
from barnabas.wire.streams.tokens import QUOTED, SYMBOL, WORD, SyntaxProblem, Token, tokens

_OPEN, _CLOSE = frozenset("<("), frozenset(">)")
_STATED = "EVENT_TIME"
_PLAIN_TIMES = ("TIMESTAMP", "TIMESTAMP_LTZ")


def time_columns(schema: str) -> list[str]:
    """The TIMESTAMP columns of a schema such as `device STRING, at TIMESTAMP`; empty if it does not parse."""
    try:
        return [column[0].name for column in _columns(schema) if _is_time(column)]
    except SyntaxProblem:
        return []


def meant_time(clauses: Clauses, schema: str) -> str | None:
    """The only time in the values, if the stream uses the records' own times without saying so."""
    found = time_columns(schema)
    if clauses.time != RECORD_TIME or clauses.by_clock or len(found) != 1:
        return None
    return None if any(token.says(_STATED) for token in tokens(clauses.text)) else found[0]


def told_time(time: str) -> str:
    """An event time in words."""
    return f"{time}, the record's own time" if time == RECORD_TIME else time


def _is_time(column: list[Token]) -> bool:
    name, kind = column[0], next((token for token in column[1:] if token.text != ":"), None)
    return name.kind in (WORD, QUOTED) and kind is not None and kind.says(*_PLAIN_TIMES)


def _columns(schema: str) -> Iterator[list[Token]]:
    """The tokens of each column; types may contain other types."""
    depth, column = 0, list[Token]()
    for token in tokens(schema):
        if token.kind == SYMBOL:  # two may be adjacent, as in array<array<int>>
            depth += sum(char in _OPEN for char in token.text) - sum(char in _CLOSE for char in token.text)
        if not depth and token.says(","):
            if column:
                yield column
            column = []
        else:
            column.append(token)
    if column:
        yield column
