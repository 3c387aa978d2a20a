"""The log line for a private door of a library that is shut (docs/decisions/0020-private-doors.md)."""

from __future__ import annotations

import logging

_said: set[str] = set()


def warn_shut(door: str, instead: str, error: BaseException) -> None:
    """Warn once per process that a part of a library is not as expected, and what that costs."""
    if door not in _said:
        _said.add(door)
        lines = str(error).splitlines() or [type(error).__name__]
        logging.getLogger("barnabas.streams").warning("%s has changed, so %s: %s", door, instead, lines[0])
