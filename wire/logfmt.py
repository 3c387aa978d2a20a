"""The form of all log lines, whoever writes them: `event key=value key="a value"` (logfmt), one line per event.

A value may be a stranger's text (a group id, a host name, an error that quotes them): it stays one value of one line,
steers no terminal, and is bounded in length.

For programs that read logs there is the same as JSON, one object on each line.
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
# A longer value is cut in its middle: in a traceback both ends say most.
MAX_VALUE_CHARS = 8192
_QUOTED = frozenset(' "=\\')


def told(event: str, fields: Mapping[str, object]) -> str:
    """An event with its fields."""
    return visible(event) + "".join(f" {visible(key)}={_quoted(value)}" for key, value in fields.items())


def told_as_json(time: str, level: str, event: str, fields: Mapping[str, object]) -> str:
    """A line of JSON: `time` (UTC, ISO 8601), `level`, `event`, and the fields. Numbers stay numbers.

    A field that is named like one of those three has an underscore behind its name.
    """
    line: dict[str, object] = {"time": time, "level": level, "event": event}
    for key, value in fields.items():
        line[f"{key}_" if key in ("time", "level", "event") else key] = _plain(value)
    return json.dumps(line)  # ASCII only, so that no character of it steers a terminal or ends the line


def _plain(value: object) -> object:
    """As JSON has it: a number, a truth value or null as it is, all else as text."""
    if value is None or type(value) in (bool, int) or (type(value) is float and math.isfinite(value)):
        return value
    return _cut(str(value))


def level_of(record: LogRecord) -> str:
    """The level here of a record of Python's `logging`, whose numbers are finer."""
    return next((name for name in ("error", "warning", "info") if record.levelno >= LEVELS[name]), "debug")


def message_of(record: LogRecord) -> str:
    """The message of a record of Python's `logging`.

    Texts in it are quoted as values are, so that a group id cannot read as the rest of the sentence.
    """
    args = record.args
    if isinstance(args, tuple):
        args = tuple(_quoted(arg) if isinstance(arg, str) else arg for arg in args)
    try:
        return str(record.msg) % args if args else str(record.msg)
    except (TypeError, ValueError):
        return f"{record.msg} {args}"


def event_of(record: LogRecord) -> str:
    """The event that a record of Python's `logging` is: the name of its logger."""
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
