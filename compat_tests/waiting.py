"""Waiting for an event: a thread that changes a test's state calls `changed()`, and `until` checks again.

Other processes cannot call it, so `until` also checks by itself. The pauses between its checks grow, because most
events come soon, and a check may cost a request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: Seconds after which `until` gives up. It only ends a wait for something that never happens, and measures nothing: a
#: busy machine may take long.
DEADLINE = 120.0
#: Seconds between two checks: the first pause and the longest one. Each pause is 1.5 times the one before it.
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.3

_condition = threading.Condition()


def changed() -> None:
    """Wake all that wait in `until`: the state has changed."""
    with _condition:
        _condition.notify_all()


def until(true: Callable[[], object], what: str, deadline: float = DEADLINE) -> None:
    """Return when `true()` holds. Raises AssertionError, naming `what`, if it does not in time."""
    end, pause = time.monotonic() + deadline, FIRST_PAUSE
    with _condition:
        while not true():
            left = end - time.monotonic()
            assert left > 0, f"not in {deadline:g} s: {what}"
            _condition.wait(min(left, pause))
            pause = min(pause * 1.5, LONGEST_PAUSE)
