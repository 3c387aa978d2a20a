"""MySQL's partial updates of JSON (`binlog_row_value_options=PARTIAL_JSON`): the old value, and changes to it.

A change is a byte (0 replace, 1 insert, 2 remove), a path and, except for remove, a value in binary JSON; the path and
the value each follow their length. The place that the path names must exist, except that an insert into an object needs
a new key. Otherwise the old value is not the one that was changed, and nothing may be derived from it.
Source: "JSON_SET", "JSON Path Syntax" and "binlog_row_value_options" of MySQL's documentation, and the description of
partial updates in its `rows_event.h`. Not tested against a server.
"""

from __future__ import annotations

import json
import re
from typing import Any

from barnabas.connect.binlog.binary_json import Decimals, text_of
from barnabas.connect.mysql.packets import ProtocolError, lenenc_bytes

_REPLACE, _INSERT, _REMOVE = range(3)
#: A leg of a path: .name, ."any text", [number], [last], [last-number]
_LEG = re.compile(r'\.("(?:[^"\\]|\\.)*+"|[^\s."\[\]*]+)|\[(?:(\d{1,9})|last(?:-(\d{1,9}))?)\]')
_NOT_THERE = "a change of a JSON value is about {}, which the value before does not have so"


class _Number(str):
    """The digits of a number, as written."""

    __slots__ = ()


_decode = json.JSONDecoder(parse_float=_Number, parse_int=_Number).decode


def patched(before: str, changes: bytes, decimals: Decimals) -> str:
    """The text of a value after the changes. Raises ValueError."""
    value = _decode(before)
    at = 0
    while at < len(changes):
        kind = changes[at]
        if kind > _REMOVE:
            raise ValueError(f"a change of a JSON value is of type {kind}")
        try:
            path, at = lenenc_bytes(changes, at + 1)
            new = None
            if kind != _REMOVE:
                raw, at = lenenc_bytes(changes, at)
                new = _decode(text_of(raw, decimals))
        except (ProtocolError, IndexError) as error:
            raise ValueError(f"a change of a JSON value is cut off: {error}") from None
        _change(value, path.decode(), kind, new)
    return _text(value)


def _change(value: Any, path: str, kind: int, new: Any) -> None:
    *before, last = _legs(path)
    for leg in before:
        value = value[_place(value, leg, path)]
    if kind == _INSERT and isinstance(value, list) and not isinstance(last, str):
        value.insert(max(len(value) + last if last < 0 else last, 0), new)
    elif kind == _INSERT and isinstance(value, dict) and isinstance(last, str) and last not in value:
        value[last] = new
    elif kind == _INSERT:
        raise ValueError(_NOT_THERE.format(path))
    elif kind == _REPLACE:
        value[_place(value, last, path)] = new
    else:
        del value[_place(value, last, path)]


def _place(value: Any, leg: str | int, path: str) -> Any:
    """Where a leg leads: a key of an object, or an index of an array."""
    if isinstance(value, dict) and leg in value:
        return leg
    if isinstance(value, list) and isinstance(leg, int) and -len(value) <= leg < len(value):
        return leg
    raise ValueError(_NOT_THERE.format(path))


def _legs(path: str) -> list[str | int]:
    """Each leg: a name, an index from the beginning, or a negative one from the end."""
    found: list[str | int] = []
    at = 1
    while at < len(path):
        leg = _LEG.match(path, at)
        if leg is None:
            break
        name, number, behind = leg.groups()
        if name is not None:
            found.append(json.loads(name) if name.startswith('"') else name)
        else:
            found.append(int(number) if number is not None else -1 - int(behind or 0))
        at = leg.end()
    if not path.startswith("$") or at < len(path) or not found:
        raise ValueError(f"a change of a JSON value has the path {path!r}")
    return found


def _text(value: Any) -> str:
    """The text as the server prints it: an object's keys are sorted by length, then by bytes."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
        return "{" + ", ".join(f"{_text(name)}: {_text(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
