"""The log of logins, failed logins and refused operations (like Kafka's `kafka.authorizer.logger`).

A client can cause these any number of times, so the lines per second are bounded: for each principal, for the failed
logins of each address, and in all. Lines that are left out are counted, and the next line has their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from barnabas.broker.log import EventLog
from barnabas.broker.security.operations import Right
from barnabas.broker.security.principals import NODE, Principal

LINES_PER_SECOND = 50
LINES_OF_ONE = 10
#: Longest resource name in a line.
_NAME_CHARS = 300


class Audit:
    """Writes the lines. `now` gives seconds."""

    def __init__(self, log: EventLog, now: Callable[[], float]) -> None:
        self._log, self._now = log, now
        self._second, self._lines, self._left_out = -1, 0, 0
        self._of: Counter[str] = Counter()

    @property
    def tells_allowed(self) -> bool:
        """Whether allowed operations are logged, too."""
        return self._log.writes("debug")

    def denied(self, principal: Principal, host: str, right: Right, name: str, api: str) -> None:
        """Log that a client was refused."""
        if self._may_write(str(principal)):
            self._log.info("authorizer.denied", **_fields(principal, "Denied", host, right, name, api))

    def allowed(self, principal: Principal, host: str, right: Right, name: str, api: str) -> None:
        """Log that a client was allowed."""
        self._log.debug("authorizer.allowed", **_fields(principal, "Allowed", host, right, name, api))

    def logged_in(self, principal: Principal, mechanism: str, host: str, listener: str, *, is_new: bool) -> None:
        """Log that a client has logged in, for the first time on its connection or again."""
        if principal != NODE and self._may_write(str(principal)):
            who = str(principal)[:_NAME_CHARS]
            event = "login" if is_new else "login.again"
            self._log.info(event, principal=who, mechanism=mechanism, client=host, listener=listener)

    def not_let_in(self, user: str, mechanism: str, host: str, listener: str, reason: str) -> None:
        """Log a failed login; `user` is the name that the client gave."""
        if self._may_write(host):
            self._log.warning(
                "login.failed",
                user=user[:_NAME_CHARS],
                mechanism=mechanism[:_NAME_CHARS],
                client=host,
                listener=listener,
                reason=reason[:_NAME_CHARS],
            )

    def _may_write(self, who: str) -> bool:
        second = int(self._now())
        if second != self._second:
            self._second, self._lines = second, 0
            self._of.clear()
            if self._left_out:
                self._log.info("audit.left_out", lines=self._left_out)
                self._left_out = 0
        if self._lines >= LINES_PER_SECOND or self._of[who] >= LINES_OF_ONE:
            self._left_out += 1
            return False
        self._lines += 1
        self._of[who] += 1
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
