"""The log of who was refused what, as Kafka's `kafka.authorizer.logger` has it.

A client can be refused any number of times, so lines are bounded in a second: for each principal, and in all. What is
left out is counted, and the number told with the next line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from barnabas.broker.log import EventLog
from barnabas.broker.security.operations import Right
from barnabas.broker.security.principals import Principal

LINES_PER_SECOND = 50
LINES_OF_ONE = 10
#: Longest resource name in a line.
_NAME_CHARS = 300


class Audit:
    """Writes the lines. `now` gives seconds."""

    def __init__(self, log: EventLog, now: Callable[[], float]) -> None:
        self._log, self._now = log, now
        self._second, self._lines, self._left_out = -1, 0, 0
        self._of: Counter[Principal] = Counter()

    @property
    def tells_allowed(self) -> bool:
        """Whether what is allowed is written, too."""
        return self._log.writes("debug")

    def denied(self, principal: Principal, host: str, right: Right, name: str, api: str) -> None:
        """A client was refused."""
        if self._may_write(principal):
            self._log.info("authorizer.denied", **_fields(principal, "Denied", host, right, name, api))

    def allowed(self, principal: Principal, host: str, right: Right, name: str, api: str) -> None:
        """A client was let."""
        self._log.debug("authorizer.allowed", **_fields(principal, "Allowed", host, right, name, api))

    def _may_write(self, principal: Principal) -> bool:
        second = int(self._now())
        if second != self._second:
            self._second, self._lines = second, 0
            self._of.clear()
            if self._left_out:
                self._log.info("authorizer.denied.left_out", lines=self._left_out)
                self._left_out = 0
        if self._lines >= LINES_PER_SECOND or self._of[principal] >= LINES_OF_ONE:
            self._left_out += 1
            return False
        self._lines += 1
        self._of[principal] += 1
        return True


def _fields(principal: Principal, result: str, host: str, right: Right, name: str, api: str) -> dict[str, str]:
    return {
        "principal": str(principal)[:_NAME_CHARS],
        "result": result,
        "operation": right.operation.name,
        "host": host,
        "resource": f"{right.type.name}:LITERAL:{name[:_NAME_CHARS]}",
        "request": api,
    }
