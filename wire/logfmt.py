"""The form of all log lines: `event key=value key="a value"` (logfmt), one line per event.

A value may come from an untrusted source (a group id, a host name, an error that quotes them). It stays one value on
one line, contains no terminal controls, and is bounded in length.

Programs that read logs can have the same as JSON, one object per line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.wire.text import visible

if TYPE_CHECKING:
    from logging import LogRecord

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# A longer value is cut in the middle: a traceback's two ends say the most.
MAX_VALUE_CHARS = 8192
_QUOTED = frozenset(' "=\\')


def told(event: str, fields: Mapping[str, object]) -> str:
    """An event with its fields."""
    return visible(event) + "".join(f" {visible(key)}={_quoted(value)}" for key, value in fields.items())


def told_as_json(time: str, level: str, event: str, fields: Mapping[str, object]) -> str:
    """A line of JSON: `time` (UTC, ISO 8601), `level`, `event`, and the fields. Numbers stay numbers.

    A field with one of these three names gets an underscore after its name.
    """
    line: dict[str, object] = {"time": time, "level": level, "event": event}
    for key, value in fields.items():
        line[f"{key}_" if key in ("time", "level", "event") else key] = _plain(value)
    return json.dumps(line)  # ASCII only, so no character can control a terminal or end the line


def _plain(value: object) -> object:
    """As a JSON value: numbers, booleans and null stay, everything else becomes text."""
    if value is None or type(value) in (bool, int) or (type(value) is float and math.isfinite(value)):
        return value
    return _cut(str(value))


def level_of(record: LogRecord) -> str:
    """Our level for a record of Python's `logging`, whose levels are finer."""
    return next((name for name in ("error", "warning", "info") if record.levelno >= LEVELS[name]), "debug")


def message_of(record: LogRecord) -> str:
    """The message of a record of Python's `logging`.

    Texts in it are quoted like values, so that a group id cannot pass for the rest of the sentence.
    """
    args = record.args
    if isinstance(args, tuple):
        args = tuple(_quoted(arg) if isinstance(arg, str) else arg for arg in args)
    try:
        return str(record.msg) % args if args else str(record.msg)
    except (TypeError, ValueError):
        return f"{record.msg} {args}"


def event_of(record: LogRecord) -> str:
    """The event name for a record of Python's `logging`: its logger's name."""
    return record.name.removeprefix("barnabas.")


def _quoted(value: object) -> str:
    text = _cut(str(value))
    if text and text.isprintable() and _QUOTED.isdisjoint(text):
        return text
    return '"' + visible(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _cut(text: str) -> str:
    more = len(text) - MAX_VALUE_CHARS
    if more <= 0:
        return text
    head = MAX_VALUE_CHARS // 2
    return f"{text[:head]} ... {more} characters left out ... {text[head + more :]}"
