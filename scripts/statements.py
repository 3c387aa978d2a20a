"""The statements of `barnabas sql`, taken apart. What follows AS is Spark's SQL, and left as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.client.errors import ClientError

_NAME = r"(?:`(?P<quoted>[^`]+)`|(?P<name>[A-Za-z0-9._-]+))"
_OPTION = re.compile(r"\s*'(?P<key>[^']+)'\s*=\s*'(?P<value>(?:[^']|'')*)'\s*(?P<more>,?)")
_TOKENS = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|`[^`]*`|--[^\n]*|/\*.*?\*/|;""", re.DOTALL)
_HELP = {
    "CREATE": "CREATE TOPIC [IF NOT EXISTS] name [(column TYPE, ...)] [PARTITIONS n] [WITH ('key' = 'value', ...)] "
    "[AS SELECT ...]",
    "DROP": "DROP TOPIC [IF EXISTS] name",
    "ALTER": "ALTER TOPIC name AS SELECT ... | SET ('key' = 'value', ...) | INFER SCHEMA",
    "SHOW": "SHOW TOPICS | SHOW QUERIES",
    "DESCRIBE": "DESCRIBE TOPIC name",
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
    name: str
    if_exists: bool


class AlterTopic(NamedTuple):
    """One of the three is given."""

    name: str
    query: str | None = None
    options: dict[str, str] | None = None
    infer: bool = False


class Show(NamedTuple):
    what: str  # TOPICS or QUERIES


class Describe(NamedTuple):
    name: str


class Select(NamedTuple):
    query: str


Statement = CreateTopic | DropTopic | AlterTopic | Show | Describe | Select


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
    make = {"CREATE": _create, "DROP": _drop, "ALTER": _alter, "SHOW": _show, "DESCRIBE": _describe, "DESC": _describe}
    if word not in make:
        raise ClientError(f"{text.split()[0]}: expected SELECT, {', '.join(_HELP)}")
    found = make[word](text)
    if found is None:
        raise ClientError(f"this does not parse; expected: {_HELP['DESCRIBE' if word == 'DESC' else word]}")
    return found


def _create(text: str) -> CreateTopic | None:
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


def _drop(text: str) -> DropTopic | None:
    found = _match(rf"DROP\s+TOPIC\s+(?P<quiet>IF\s+EXISTS\s+)?{_NAME}\s*$", text)
    return None if found is None else DropTopic(_name(found), bool(found["quiet"]))


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
    found = _match(r"SHOW\s+(?P<what>TOPICS|QUERIES)\s*$", text)
    return None if found is None else Show(found["what"].upper())


def _describe(text: str) -> Describe | None:
    found = _match(rf"DESC(?:RIBE)?\s+TOPIC\s+{_NAME}\s*$", text)
    return None if found is None else Describe(_name(found))


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
