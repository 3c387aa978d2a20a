"""Structured log lines on standard error: `time level event key=value ...` (logfmt), one line per event."""

from __future__ import annotations

import sys
import time
import traceback
from typing import Any, TextIO

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def _quote(value: Any) -> str:
    text = str(value)
    if text and not any(c in text for c in ' "=\n\r\t'):
        return text
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", " ")
    )
    return f'"{escaped}"'


class Log:
    """A sink of events. `level` is the lowest that is written."""

    def __init__(self, stream: TextIO | None = None, level: str = "info") -> None:
        self.stream, self.level = stream or sys.stderr, LEVELS[level]

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if LEVELS[level] < self.level:
            return
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
        pairs = "".join(f" {key}={_quote(value)}" for key, value in fields.items())
        try:
            self.stream.write(f"{stamp} {level} {event}{pairs}\n")
            self.stream.flush()
        except (OSError, ValueError):
            pass  # a log that nobody can read must not stop the broker

    def debug(self, event: str, **fields: Any) -> None:
        """What only who looks for it wants to see."""
        self._write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Something that happened."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something that the operator should look at."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Something that failed."""
        self._write("error", event, fields)

    def exception(self, event: str, error: BaseException, **fields: Any) -> None:
        """A failure that should not have happened, with its traceback in one line."""
        trace = "".join(traceback.format_exception(error))
        self._write("error", event, {**fields, "error": repr(error), "trace": trace})
