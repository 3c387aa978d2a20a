"""The statements of `barnabas sql`, taken apart. What follows AS is Spark's SQL, and left as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas.client.errors import ClientError
from barnabas.scripts.insert import Insert, parse_insert
from barnabas.wire.streams.tokens import QUOTED, WORD, SyntaxProblem, Token, closing, problem, tokens

_NAME = r"(?:`(?P<quoted>[^`]+)`|(?P<name>[A-Za-z0-9._-]+))"
_OPTION = re.compile(r"\s*'(?P<key>[^']+)'\s*=\s*'(?P<value>(?:[^']|'')*)'\s*(?P<more>,?)")
_TOKENS = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|;""", re.DOTALL)
_HELP = {
    "CREATE": "CREATE TOPIC [IF NOT EXISTS] name [(column TYPE, ...)] [PARTITIONS n] [WITH ('key' = 'value', ...)] "
    "[AS SELECT ...] | CREATE STREAM [IF NOT EXISTS] name [option ...] [INTO topic] [PARTITIONS n] "
    "[WITH ('key' = 'value', ...)] AS SELECT ...",
    "DROP": "DROP TOPIC [IF EXISTS] name [CASCADE] | DROP STREAM [IF EXISTS] name",
    "ALTER": "ALTER TOPIC name AS SELECT ... | SET ('key' = 'value', ...) | INFER SCHEMA",
    "INSERT": "INSERT INTO topic [(column, ...)] VALUES (...), ...",
    "SHOW": "SHOW TOPICS | SHOW QUERIES | SHOW STREAMS | SHOW CONSUMERS | SHOW SUBSCRIPTIONS",
    "DESCRIBE": "DESCRIBE TOPIC name | DESCRIBE STREAM name",
    "EXPLAIN": "EXPLAIN CREATE STREAM ... | EXPLAIN STREAM name",
    **{word: f"{word} STREAM name" for word in ("PAUSE", "RESUME", "STOP", "START", "RECALCULATE")},
}


class CreateTopic(NamedTuple):
    """An ordinary topic, perhaps with columns (DDL), or one made of a query."""

    name: str
    if_not_exists: bool
    columns: str | None
    partitions: int
    options: dict[str, str]
    query: str | None


class DropTopic(NamedTuple):
    """With `cascade` also a topic that query topics or streams read."""

    name: str
    if_exists: bool
    cascade: bool = False


class AlterTopic(NamedTuple):
    """One of the three is given."""

    name: str
    query: str | None = None
    options: dict[str, str] | None = None
    infer: bool = False


class CreateStream(NamedTuple):
    """A stream: `text` is what the broker gets, its options and its SELECT with its clauses."""

    name: str
    if_not_exists: bool
    into: str
    partitions: int
    options: dict[str, str]
    text: str


class DropStream(NamedTuple):
    name: str
    if_exists: bool


class ControlStream(NamedTuple):
    name: str
    word: str  # PAUSE, RESUME, STOP, START or RECALCULATE


class Show(NamedTuple):
    what: str  # TOPICS, QUERIES, STREAMS, CONSUMERS or SUBSCRIPTIONS


class Describe(NamedTuple):
    name: str


class DescribeStream(NamedTuple):
    name: str


class Explain(NamedTuple):
    """A stream that is there, or a statement that would make one."""

    stream: str | CreateStream


class Select(NamedTuple):
    query: str


Statement = (
    CreateTopic
    | DropTopic
    | Insert
    | AlterTopic
    | CreateStream
    | DropStream
    | ControlStream
    | Show
    | Describe
    | DescribeStream
    | Explain
    | Select
)


def split(text: str) -> Iterator[str]:
    """The statements of a text, which `;` ends, without comments."""
    begin, parts = 0, ""
    for found in _TOKENS.finditer(text):
        token = found[0]
        if token == ";":
            parts += text[begin : found.start()]
            begin = found.end()
            if parts.strip():
                yield parts.strip()
            parts = ""
        elif token.startswith(("--", "/*")):
            parts += text[begin : found.start()] + " "
            begin = found.end()
    if (parts + text[begin:]).strip():
        yield (parts + text[begin:]).strip()


def parse(text: str) -> Statement:
    """One statement. Raises ClientError with the form that is expected."""
    word = (re.match(r"[A-Za-z]+", text) or [""])[0].upper()
    if word in ("SELECT", "WITH", "FROM", "VALUES"):
        return Select(text)
    make: dict[str, Callable[[str], Statement | None]] = {
        "CREATE": _create,
        "DROP": _drop,
        "ALTER": _alter,
        "INSERT": _insert,
        "SHOW": _show,
        "DESCRIBE": _describe,
        "DESC": _describe,
        "EXPLAIN": _explain,
        **dict.fromkeys(("PAUSE", "RESUME", "STOP", "START", "RECALCULATE"), _control),
    }
    if word not in make:
        raise ClientError(f"{text.split()[0]}: expected SELECT, {', '.join(_HELP)}")
    found = make[word](text)
    if found is None:
        raise ClientError(f"this does not parse; expected: {_HELP['DESCRIBE' if word == 'DESC' else word]}")
    return found


def _create(text: str) -> CreateTopic | CreateStream | None:
    if _match(r"CREATE\s+STREAM\b", text):
        return _create_stream(text)
    head = _match(rf"CREATE\s+TOPIC\s+(?P<quiet>IF\s+NOT\s+EXISTS\s+)?{_NAME}", text)
    if head is None:
        return None
    rest = text[head.end() :].lstrip()
    columns = None
    if rest.startswith("("):
        columns, rest = _parenthesis(rest)
    partitions, options, query = -1, {}, None
    while rest:
        count = _match(r"PARTITIONS\s+(?P<n>\d+)\b\s*", rest)
        if count is not None:
            partitions, rest = int(count["n"]), rest[count.end() :]
        elif (with_ := _match(r"WITH\s*(?=\()", rest)) is not None:
            inside, rest = _parenthesis(rest[with_.end() :])
            options = _options(inside)
        elif (as_ := _match(r"AS\s+(?=[(A-Za-z])", rest)) is not None:
            query, rest = rest[as_.end() :], ""
        else:
            return None
    return CreateTopic(_name(head), bool(head["quiet"]), columns, partitions, options, query)


def _create_stream(text: str) -> CreateStream | None:
    """What says where a stream goes is cut out by tokens; the rest of the text is the stream's own."""
    head = _match(rf"CREATE\s+STREAM\s+(?P<quiet>IF\s+NOT\s+EXISTS\s+)?{_NAME}", text)
    if head is None:
        return None
    rest = text[head.end() :]
    into, partitions, options = _name(head), -1, dict[str, str]()
    kept = list(rest)
    try:
        found = tokens(rest)
        at = 0
        while at < len(found) and not found[at].says("AS", "SELECT"):
            end = at + 1
            following = found[end] if end < len(found) else None
            if found[at].says("INTO"):
                into, end = _topic(rest, found, end)
            elif found[at].says("PARTITIONS") and following is not None and following.text.isdecimal():
                partitions, end = int(following.text), end + 1
            elif found[at].says("WITH") and following is not None and following.says("("):
                end = closing(rest, found, end) + 1
                options = _options(rest[following.end : found[end - 1].start].strip())
            elif following is not None and following.says("("):
                at = closing(rest, found, end) + 1
                continue
            else:
                at += 1
                continue
            begin, last = found[at].start, found[end - 1].end
            kept[begin:last] = [" "] * (last - begin)
            at = end
    except SyntaxProblem as error:
        raise ClientError(str(error)) from None
    body = "".join(kept).strip()
    return CreateStream(_name(head), bool(head["quiet"]), into, partitions, options, body)


def _topic(text: str, found: list[Token], at: int) -> tuple[str, int]:
    """The name of a topic behind INTO, which may have dots and dashes, and the token after it."""
    if at >= len(found) or found[at].kind not in (WORD, QUOTED):
        raise problem(text, found[at].start if at < len(found) else len(text), "expected the name of a topic")
    end = at + 1
    if found[at].kind == QUOTED:
        return found[at].name, end
    while end < len(found) and found[end].start == found[end - 1].end and not found[end].says("(", ","):
        end += 1
    return text[found[at].start : found[end - 1].end], end


def _drop(text: str) -> DropTopic | DropStream | None:
    found = _match(rf"DROP\s+(?P<kind>TOPIC|STREAM)\s+(?P<quiet>IF\s+EXISTS\s+)?{_NAME}(?P<all>\s+CASCADE)?\s*$", text)
    if found is None:
        return None
    if found["kind"].upper() == "TOPIC":
        return DropTopic(_name(found), bool(found["quiet"]), bool(found["all"]))
    return None if found["all"] else DropStream(_name(found), bool(found["quiet"]))


def _control(text: str) -> ControlStream | None:
    found = _match(rf"(?P<word>[A-Za-z]+)\s+STREAM\s+{_NAME}(?P<more>\s.*)?$", text)
    if found is None:
        return None
    if found["more"] and found["more"].strip():
        raise ClientError(f"{found['more'].strip()} is not supported: a stream goes on where it was")
    return ControlStream(_name(found), found["word"].upper())


def _explain(text: str) -> Explain | None:
    rest = text[len("EXPLAIN") :].strip()
    if _match(r"CREATE\s+STREAM\b", rest):
        made = _create_stream(rest)
        return None if made is None else Explain(made)
    found = _match(rf"STREAM\s+{_NAME}\s*$", rest)
    return None if found is None else Explain(_name(found))


def _alter(text: str) -> AlterTopic | None:
    head = _match(rf"ALTER\s+TOPIC\s+{_NAME}\s+", text)
    if head is None:
        return None
    name, rest = _name(head), text[head.end() :]
    if (as_ := _match(r"AS\s+(?=[(A-Za-z])", rest)) is not None:
        return AlterTopic(name, query=rest[as_.end() :])
    if (set_ := _match(r"SET\s*(?=\()", rest)) is not None:
        inside, after = _parenthesis(rest[set_.end() :])
        return None if after else AlterTopic(name, options=_options(inside))
    return AlterTopic(name, infer=True) if _match(r"INFER\s+SCHEMA\s*$", rest) else None


def _show(text: str) -> Show | None:
    found = _match(r"SHOW\s+(?P<what>TOPICS|QUERIES|STREAMS|CONSUMERS|SUBSCRIPTIONS)\s*$", text)
    return None if found is None else Show(found["what"].upper())


def _describe(text: str) -> Describe | DescribeStream | None:
    found = _match(rf"DESC(?:RIBE)?\s+(?P<kind>TOPIC|STREAM)\s+{_NAME}\s*$", text)
    if found is None:
        return None
    return Describe(_name(found)) if found["kind"].upper() == "TOPIC" else DescribeStream(_name(found))


def _insert(text: str) -> Insert:
    try:
        return parse_insert(text)
    except SyntaxProblem as error:
        raise ClientError(str(error)) from None


def _match(pattern: str, text: str) -> re.Match[str] | None:
    return re.match(pattern, text, re.IGNORECASE)


def _name(found: re.Match[str]) -> str:
    return found["quoted"] or found["name"]


def _parenthesis(text: str) -> tuple[str, str]:
    """What stands in the parentheses with which `text` begins, and what follows them."""
    depth = 0
    for found in re.finditer(r"'(?:[^']|'')*'|`[^`]*`|[()<>]", text):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if not depth:
            return text[1 : found.start()].strip(), text[found.end() :].lstrip()
    raise ClientError(f"a parenthesis is not closed: {text[:40]}")


def _options(text: str) -> dict[str, str]:
    found, at = {}, 0
    while at < len(text):
        option = _OPTION.match(text, at)
        if option is None:
            raise ClientError(f"expected 'key' = 'value', ... in parentheses at: {text[at : at + 40]}")
        found[option["key"]] = option["value"].replace("''", "'")
        at = option.end()
        if bool(option["more"]) != (at < len(text)):
            raise ClientError(f"expected 'key' = 'value', ... in parentheses at: {text[at : at + 40] or 'the end'}")
    return found
