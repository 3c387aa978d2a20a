"""The broker's log on standard error: one line for each event, `time level event key=value ...` (`wire.logfmt`), or
JSON.

Messages of other packages to Python's `logging` go to this log too (`Bridge`).
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections import Counter
from typing import Any, TextIO

from barnabas.wire.logfmt import LEVELS, event_of, level_of, message_of, told, told_as_json

# The most lines per second from `logging` below level error, because clients can cause any number of them.
BRIDGE_LINES_PER_SECOND = 200


class EventLog:
    """A sink of events. `level` is the lowest level that is written."""

    def __init__(self, stream: TextIO | None = None, level: str = "info", *, as_json: bool = False) -> None:
        self.stream, self.level, self._as_json = stream or sys.stderr, LEVELS[level], as_json
        self._said: set[str] = set()
        self._always: dict[str, Any] = {}
        #: How often each event occurred, by level and event. This also counts events whose level is not written.
        self.told: Counter[tuple[str, str]] = Counter()

    def write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        """Write a line, if its level is written."""
        self.told[level, event] += 1
        if LEVELS[level] < self.level:
            return
        if self._always:
            fields = {**self._always, **fields}
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
        try:
            if self._as_json:
                self.stream.write(f"{told_as_json(stamp, level, event, fields)}\n")
            else:
                self.stream.write(f"{stamp} {level} {told(event, fields)}\n")
            self.stream.flush()
        except (OSError, ValueError):
            pass  # a log that nobody can read must not stop the broker

    def of(self, **fields: Any) -> EventLog:
        """A log with the same output, which adds these fields to each line."""
        found = EventLog(self.stream, as_json=self._as_json)
        found.level, found._always = self.level, {**self._always, **fields}
        return found

    def debug(self, event: str, **fields: Any) -> None:
        """Log details, for finding a cause."""
        self.write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log something that happened."""
        self.write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log something that the operator should check."""
        self.write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log something that failed."""
        self.write("error", event, fields)

    def writes(self, level: str) -> bool:
        """Whether lines of a level are written."""
        return LEVELS[level] >= self.level

    def is_new(self, what: str) -> bool:
        """Whether this is the first call with this text. Used for lines that are logged only once."""
        if what in self._said:
            return False
        self._said.add(what)
        return True

    def exception(self, event: str, error: BaseException, **fields: Any) -> None:
        """Log a failure that should not have happened, with its traceback in one line."""
        trace = "".join(traceback.format_exception(error))
        self.write("error", event, {**fields, "error": repr(error), "trace": trace})


class Bridge(logging.Handler):
    """Writes messages to Python's `logging` to the log: the event is the logger's name, and `message` is the text.

    The coordinator uses `logging`, because it does not know the broker. Lines above a number in a second are left out
    and counted.
    """

    def __init__(self, log: EventLog) -> None:
        super().__init__()
        self._log = log
        self._second, self._lines = 0, 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. Called from any thread, with the handler's lock held."""
        level = level_of(record)
        if LEVELS[level] < self._log.level or (record.levelno < logging.ERROR and not self._may_write()):
            return
        fields: dict[str, Any] = {"message": message_of(record)}
        if record.exc_info and record.exc_info[1]:
            fields["error"] = repr(record.exc_info[1])
            fields["trace"] = "".join(traceback.format_exception(record.exc_info[1]))
        self._log.write(level, event_of(record), fields)

    def _may_write(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            left_out = self._lines - BRIDGE_LINES_PER_SECOND
            self._second, self._lines = second, 0
            if left_out > 0:
                self._log.warning("log.lines_left_out", lines=left_out)
        self._lines += 1
        return self._lines <= BRIDGE_LINES_PER_SECOND


def take_logging(log: EventLog) -> None:
    """From now on, write the messages of `logging` to `log`, and nowhere else."""
    logging.basicConfig(level=min(log.level, logging.INFO), handlers=[Bridge(log)], force=True)
