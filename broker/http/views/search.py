"""Searches in records: for a text in the key, value or headers, or for a path in a value that is JSON.

    order-17               the text, in upper or lower case
    $.customer.id = 42     a JSON path with a comparison: = != < <= > >=, or ~ for "contains this text"
    $.items[0].sku         the path exists

A search is no program and no regular expression, so it cannot run for long. The time for a text grows with the value's
length. A path is followed without decoding the rest of the value. Values above `MOST_JSON` bytes are not searched.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from barnabas.wire.batch import Record

MOST_SEARCH = 1000
MOST_JSON = 1 << 20
MOST_STEPS = 20
_STEP = re.compile(r"""\.([\w-]+)|\[(\d{1,3})\]|\["((?:[^"\\]|\\.)*)"\]""")
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPARISON = re.compile(r"\s*(!=|<=|>=|=|<|>|~)\s*(.*)$", re.DOTALL)

#: Whether a record matches.
Search = Callable[[Record], bool]
Step = str | int


class WrongSearch(ValueError):
    """The text is not a search. The message says where it is wrong."""


def search_of(text: str) -> Search | None:
    """The search for a text; None if the text is empty. Raises WrongSearch."""
    text = text.strip()
    if len(text) > MOST_SEARCH:
        raise WrongSearch(f"a search has at most {MOST_SEARCH} characters")
    if not text:
        return None
    if text.startswith(("$.", "$[")):
        return _path_search(text)
    wanted = text.encode().lower()

    def has_text(record: Record) -> bool:
        if any(part is not None and wanted in part.lower() for part in (record.value, record.key)):
            return True
        return any(
            wanted in name.encode().lower() or wanted in (value or b"").lower() for name, value in record.headers
        )

    return has_text


def _path_search(text: str) -> Search:
    steps, at = [], 1
    while (found := _STEP.match(text, at)) is not None:
        name, index, quoted = found.groups()
        steps.append(int(index) if index is not None else name if name is not None else _unquoted(quoted))
        at = found.end()
    if not steps or len(steps) > MOST_STEPS:
        raise WrongSearch(f"a path is like $.name or $.list[0].name, with at most {MOST_STEPS} steps")
    rest = text[at:]
    if not rest.strip():
        return lambda record: _at(record.value, steps) is not None
    comparison = _COMPARISON.match(rest)
    if comparison is None:
        raise WrongSearch(f"expected = != < <= > >= or ~ at character {at + 1}, after {text[:at]}")
    holds = _holds(comparison[1], comparison[2].strip())

    def compares(record: Record) -> bool:
        found = _at(record.value, steps)
        return found is not None and holds(bytes(found))

    return compares


def _unquoted(text: str) -> str:
    try:
        return msgspec.json.decode(f'"{text}"', type=str)
    except msgspec.DecodeError:
        raise WrongSearch(f"{text} is not a valid JSON string") from None


def _holds(sign: str, given: str) -> Callable[[bytes], bool]:
    """A test that compares a JSON value with a number, a string with or without quotes, true, false or null."""
    if not given:
        raise WrongSearch(f"expected a value after {sign}")
    try:
        wanted = msgspec.json.decode(given)
    except (msgspec.DecodeError, RecursionError):
        wanted = given.strip("'")
    if sign == "~":
        inside = str(wanted).encode().lower()
        return lambda found: inside in found.lower()
    if isinstance(wanted, dict | list):
        raise WrongSearch("compare with a number, a text, true, false or null")

    def holds(found: bytes) -> bool:
        if found[:1] in b"{[":
            return sign == "!="
        value = msgspec.json.decode(found)
        if sign == "=":
            return _kind(value) == _kind(wanted) and value == wanted
        if sign == "!=":
            return _kind(value) != _kind(wanted) or value != wanted
        return _kind(value) == _kind(wanted) and _kind(value) in (float, str) and _ORDER[sign](value, wanted)

    return holds


def _kind(value: object) -> type:
    """The type of a JSON value: all numbers have one type, and true is not a number."""
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


@lru_cache(maxsize=256)
def _field_decoder(name: str) -> msgspec.json.Decoder[Any]:
    """A decoder for one field of an object, which skips the others. Not for names that `_NO_FIELD` matches."""
    kind = msgspec.defstruct("Field", [("field", msgspec.Raw, msgspec.field(default=msgspec.Raw(), name=name))])
    return msgspec.json.Decoder(kind)


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NO_FIELD = re.compile(r'[\\"\x00-\x1f]')


@lru_cache(maxsize=256)
def _element_decoder(index: int) -> msgspec.json.Decoder[Any]:
    """A decoder for one element of a list, which skips the rest."""
    fields = [(f"f{at}", msgspec.Raw, msgspec.field(default=msgspec.Raw())) for at in range(index)]
    last = ("field", msgspec.Raw, msgspec.field(default=msgspec.Raw()))
    return msgspec.json.Decoder(msgspec.defstruct("Elements", [*fields, last], array_like=True))


def _at(value: bytes | None, steps: Sequence[Step]) -> memoryview | None:
    """The JSON at a path in a JSON value; None if the path does not exist."""
    if not value or len(value) > MOST_JSON:
        return None
    found: Any = value
    try:
        for step in steps:
            if isinstance(step, int):
                found = _element_decoder(step).decode(found).field
            elif _NO_FIELD.search(step):
                found = _fields.decode(found).get(step, b"")
            else:
                found = _field_decoder(step).decode(found).field
            if not len(memoryview(found)):
                return None
    except (msgspec.DecodeError, RecursionError):
        return None
    return memoryview(found)
