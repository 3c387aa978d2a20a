"""Mistakes in a statement that are certain before any engine sees it: reported at once, with the position.

Spark takes seconds to start, and its errors use other words than those of the query topics' statements. So whatever can
be judged from the text and the topics' names is reported here, for SELECT and CREATE alike.

Invariant: Spark also refuses whatever is refused here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from itertools import pairwise

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.wire.streams.tokens import NUMBER, QUOTED, STRING, SYMBOL, WORD, SyntaxProblem, Token, problem, tokens

_PLACE = re.compile(r"line (\d+), column (\d+)")
_SHOWN = 100
#: Nested parentheses; Spark's parser gives up at some hundreds.
_MOST_NESTED = 5000
#: Words that may stand before a SELECT inside a statement.
_BEFORE_SELECT = ("AS", "UNION", "EXCEPT", "INTERSECT", "MINUS", "ALL", "DISTINCT", ")", "(")
#: Pairs of words that begin a statement wherever they occur together, and occur nowhere else.
_BEGINNINGS = {
    **dict.fromkeys(("CREATE", "DROP", "ALTER", "DESCRIBE"), ("TOPIC", "STREAM", "TABLE")),
    "INSERT": ("INTO",),
    "SHOW": ("TOPICS", "TABLES", "QUERIES", "STREAMS", "CONSUMERS", "SUBSCRIPTIONS"),
}
_CLAUSES = ("FROM", "WHERE", "HAVING", "GROUP", "ORDER", "LIMIT")
_WAITING = ("WHERE", "AND", "OR", "BY", "HAVING", "=", "<", ">", "<=", ">=", "<>", "!=", "+", "/", "||", ",", "IN")
_BEFORE_CALLS = ("SELECT", "WHERE", "AND", "OR", "BY", "HAVING", "(", ",", "=", "<", ">", "+", "-", "*", "/")


def check_text(text: str) -> None:
    """Raises ClientError, with the position, if no reading of the statement is valid."""
    try:
        found = tokens(text)
    except SyntaxProblem as error:
        if "hints are not possible" in str(error):
            return
        raise ClientError(str(error)) from None
    for wrong in (_unbalanced(text, found), _joined(text, found), _unfinished(text, found)):
        if wrong is not None:
            raise ClientError(str(wrong))


def check_query(text: str, cluster: Cluster) -> None:
    """Like `check_text`; also refuses functions and topics that do not exist."""
    check_text(text)
    try:
        found = tokens(text)
    except SyntaxProblem:
        return
    for name in _functions(found):
        _check_function(name)
    _check_topics(found, cluster)


def pointed(text: str, message: str) -> list[str]:
    """The line of an error, with a caret below its position; empty if the message has no position."""
    place = _PLACE.match(message)
    lines = text.split("\n")
    if place is None or int(place[1]) > len(lines):
        return []
    line, column = lines[int(place[1]) - 1], int(place[2]) - 1
    begin = max(0, column - _SHOWN // 2)
    shown = "".join(c if c.isprintable() else " " for c in line[begin : begin + _SHOWN])
    return [f"  {shown}".rstrip(), f"  {' ' * (column - begin)}^"]


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The nearest known word, as an addition to an error; empty if none is near."""
    near = difflib.get_close_matches(word.upper(), known, n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""


def _unbalanced(text: str, found: Sequence[Token]) -> SyntaxProblem | None:
    opened: list[Token] = []
    deepest: Token | None = None
    for token in found:
        if token.says("("):
            opened.append(token)
            deepest = token if deepest is None and len(opened) > _MOST_NESTED else deepest
        elif token.says(")"):
            if not opened:
                return problem(text, token.start, "there is no ( before this )")
            opened.pop()
    if opened:
        return problem(text, opened[-1].start, "the parenthesis is not closed")
    return problem(text, deepest.start, "this is nested too deeply") if deepest is not None else None


def _joined(text: str, found: Sequence[Token]) -> SyntaxProblem | None:
    """A problem if a second statement follows the first."""
    depth, selects = 0, bool(found) and found[0].says("SELECT")
    for number, token in enumerate(found):
        depth += token.says("(") - token.says(")")
        if depth or not number or token.kind != WORD:
            continue
        following = found[number + 1] if number + 1 < len(found) else None
        begins = following is not None and following.says(*_BEGINNINGS.get(token.text.upper(), ()))
        if token.says("SELECT"):
            is_one = following is not None and not following.says("AS", *_CLAUSES)
            is_one = is_one and following is not None and (following.kind != SYMBOL or following.says("*", "("))
            begins = selects and is_one and not found[number - 1].says(*_BEFORE_SELECT)
        if begins and not found[number - 1].says(".", ",", "SHOW", "EXPLAIN", "SELECT"):
            word = token.text.upper()
            return problem(text, token.start, f"a ; is missing before {word}, which begins another statement")
    return None


def _unfinished(text: str, found: Sequence[Token]) -> SyntaxProblem | None:
    """A problem if a SELECT ends, or a clause begins, where an expression must stand."""
    if not found or not found[0].says("SELECT"):
        return None
    last = found[-1]
    if len(found) == 1 or last.says("FROM", *_WAITING) or (last.says("-", "%") and len(found) > 2):
        what = "the name of a topic" if last.says("FROM") else "an expression"
        return problem(text, len(text.rstrip()), f"expected {what}")
    for before, token, after in zip(found, found[1:], found[2:], strict=False):
        is_clause = token.says(*_CLAUSES) and (after.kind in (WORD, QUOTED, STRING, NUMBER) or after.says("(", "-"))
        if before.says(",") and token.says("FROM") and is_clause and not after.says("FROM", "AS"):
            return problem(text, before.start, "remove the comma before FROM")
        if before.says("WHERE", "BY", "AND") and token.says("GROUP", "ORDER") and after.says("BY"):
            return problem(text, token.start, "expected an expression")
    return None


def _functions(found: Sequence[Token]) -> list[str]:
    """Words that are certainly called as functions: they stand where no name of a table or column may."""
    calls = []
    for before, token, after in zip(found, found[1:], found[2:], strict=False):
        follows = before.says(
            "SELECT", "WHERE", "AND", "OR", "BY", "HAVING", "(", ",", "=", "<", ">", "+", "-", "*", "/"
        )
        if follows and token.kind == WORD and after.says("(") and token.end == after.start:
            calls.append(token.text)
    return [] if any(token.says("WITH", "LATERAL", "UNPIVOT", "PIVOT") for token in found) else calls


def _check_function(name: str) -> None:
    try:
        from barnabas.streams.query.functions import no_function
        from barnabas.streams.query.spark_words import KEYWORDS, SPARK_FUNCTIONS
    except ImportError:  # the extra is not installed; the SELECT will report that
        return
    if name.lower() not in SPARK_FUNCTIONS and name.upper() not in KEYWORDS:
        raise ClientError(no_function(name, SPARK_FUNCTIONS))


def _check_topics(found: Sequence[Token], cluster: Cluster) -> None:
    """A name after FROM or JOIN must be that of a topic, or one that the query itself defines."""
    given = {token.name.lower() for token, after in pairwise(found) if after.says("AS")}
    named = [
        _whole_name(found, number + 1)
        for number, token in enumerate(found[:-1])
        if token.says("FROM", "JOIN") and not _is_in_call(found, number)
    ]
    wanted = [name for name in named if name and name.strip("`").lower() not in given]
    if not wanted:
        return
    topics = [topic.name or "" for topic in cluster.metadata(None) if not topic.is_internal]
    for written in wanted:
        name = written.strip("`")
        if "`" not in written and ("." in name or "-" in name):
            if name in topics:
                raise ClientError(f"write the topic's name in backquotes: `{name}`")
        elif name.lower() not in {topic.lower() for topic in topics}:
            near = difflib.get_close_matches(name, topics, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ClientError(f"there is no topic {name}: create it first{meant}")


def _whole_name(found: Sequence[Token], at: int) -> str:
    """A name, in its backquotes if it has any, with the dots and dashes in it; empty if there is none."""
    first = found[at]
    if first.kind not in (WORD, QUOTED) or first.says("LATERAL", "VALUES", "STREAM", "TABLE"):
        return ""
    end = at + 1
    if first.kind == WORD:
        while end < len(found) and found[end].start == found[end - 1].end and not found[end].says("(", ")", ",", ";"):
            end += 1
    if end < len(found) and found[end].says("(", "."):
        return ""
    return f"`{first.name}`" if first.kind == QUOTED else "".join(token.text for token in found[at:end])


def _is_in_call(found: Sequence[Token], at: int) -> bool:
    """Whether a FROM is inside a function's parentheses, as in extract(YEAR FROM x), trim(BOTH FROM x)."""
    depth = 0
    for number in range(at - 1, -1, -1):
        depth += found[number].says(")") - found[number].says("(")
        if depth < 0:
            return not found[number + 1].says("SELECT", "FROM", "WITH")
    # IS DISTINCT FROM
    return found[at - 1].says("DISTINCT") if at else False
