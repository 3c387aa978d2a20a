"""Waiting for an event: a thread that changes what a test looks at calls `changed()`, and `until` looks again.

Other processes cannot call it, so `until` also looks by itself: soon at first, as most events come soon, and then ever
more seldom, as a look may cost a request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: Until when what a test waits for must have come. It is there for what never comes, and no measure of anything: a busy
#: machine may take long.
DEADLINE = 120.0
#: Seconds between two looks, the first time and at most; each pause is half as long again as the one before it.
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.3

_condition = threading.Condition()


def changed() -> None:
    """Something that a test may wait for has changed."""
    with _condition:
        _condition.notify_all()


def until(true: Callable[[], object], what: str, deadline: float = DEADLINE) -> None:
    """Return when `true()` holds. Raises AssertionError, naming `what`, when it does not in time."""
    end, pause = time.monotonic() + deadline, FIRST_PAUSE
    with _condition:
        while not true():
            left = end - time.monotonic()
            assert left > 0, f"not in {deadline:g} s: {what}"
            _condition.wait(min(left, pause))
            pause = min(pause * 1.5, LONGEST_PAUSE)
