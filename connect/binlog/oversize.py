"""Messages that are too large for their topic, without I/O: they are split or truncated.

- `split`: the value's bytes go into several records with one key and one identity, cut between characters. Joined in
  their order, they are the value. Each has the header `barnabas.part`, such as `2/3`.
- `truncated`: the value's longest texts are cut, and its field `truncated` lists them with their original lengths. The
  value stays valid JSON. A cut SQL literal is closed again, as an open one would end inside the next; base64 stays
  base64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

STOP, SPLIT, TRUNCATE = WAYS = ("stop", "split", "truncate")
#: The header that marks a part.
PART = "barnabas.part"
#: The field that lists what was cut from a value.
MARK = "truncated"
#: A text is not cut below this length. A number or a time is never that long.
_LEAST = 128
#: The size of a mark, without the column's name.
_MARK_BYTES = 80
#: An escape in JSON and a character in UTF-8 are both shorter than this.
_ESCAPE = 12
_encode = msgspec.json.Encoder().encode


def split(value: bytes, most: int) -> list[bytes]:
    """Parts of at most `most` bytes (at least 4), each made of whole characters."""
    parts = []
    at = 0
    while at < len(value):
        end = min(at + most, len(value))
        while end < len(value) and value[end] & 0xC0 == 0x80:  # inside a character
            end -= 1
        parts.append(value[at:end])
        at = end
    return parts


class _Text(NamedTuple):
    """A text in a value: its field, and its name or number in that field. `size` is that of its JSON."""

    field: str
    at: str | int | None
    text: str
    size: int


def truncated(value: bytes, most: int) -> bytes | None:
    """The value with as little cut as makes it fit; None if cutting texts is not enough."""
    told: dict[str, Any] = msgspec.json.decode(value)
    texts = sorted(_texts(told), key=lambda each: -each.size)
    excess = len(value) + len(MARK) + 8 - most
    sizes = marks = 0
    for number, each in enumerate(texts, 1):
        sizes += each.size
        marks += _MARK_BYTES + len(_encode(each.field)) + len(_encode(each.at))
        left = (sizes - excess - marks) // number
        if left >= _LEAST and (number == len(texts) or left >= texts[number].size):
            return _cut(told, texts[:number], left)
    return None


def _texts(told: dict[str, Any]) -> list[_Text]:
    found: list[_Text] = []
    for field, part in told.items():
        named: list[tuple[str | int | None, Any]] = [(None, part)]
        if isinstance(part, list):
            named = list(enumerate(part, 1))
        elif isinstance(part, dict):
            named = list(part.items())
        found += [_Text(field, at, text, len(_encode(text))) for at, text in named if isinstance(text, str)]
    return found


def _cut(told: dict[str, Any], texts: list[_Text], left: int) -> bytes:
    marks = []
    for field, at, text, _ in texts:
        is_literal = isinstance(told[field], list)
        kept = _beginning(text, left - 2)
        kept = _closed(kept) if is_literal else kept[: len(kept) // 4 * 4]
        mark: dict[str, object] = {"in": field, "characters": len(text)}
        if at is None:
            told[field] = kept
        else:
            told[field][at - 1 if isinstance(at, int) else at] = kept
            mark["column"] = at
        marks.append(mark)
    return _encode({**told, MARK: marks})


def _beginning(text: str, size: int) -> str:
    """As much of a text as fits `size` bytes of JSON, including its quotes."""
    raw = _encode(text)
    for end in range(size - 1, size - 1 - _ESCAPE, -1):
        try:
            found: str = msgspec.json.decode(raw[:end] + b'"', type=str)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        return found
    raise AssertionError("no escape is so long")


def _closed(begun: str) -> str:
    """Close the beginning of an SQL literal, so that it is one literal."""
    if begun.startswith("'"):
        slashes = len(begun) - len(begun.rstrip("\\"))
        return begun[: len(begun) - slashes % 2] + "'"
    digits = len(begun) - begun.index("'") - 1
    return begun[: len(begun) - digits % 2] + "'"
