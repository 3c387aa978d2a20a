"""How fast logs are compacted while clients are served, if no limit is configured.

A compaction at full speed takes processor, memory and disk from clients that wait for an answer. So while the event
loop is busy, the cleaner limits the rate at which it reads and writes. It must not fall behind because of that: if
another log is due as soon as one is clean, that log is cleaned at full speed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

#: Bytes read and written per second while clients are served (docs/decisions/0040-pace-of-compaction.md).
PACE = 40e6
FULL_SPEED = sys.float_info.max
_LOOK_SECONDS = 0.05
_BUSY = 0.1
# The lowest bits of a clock's number: it counts the CPU time (2) of one thread (4).
_OF_ONE_THREAD = 6


class Pace:
    """`loop_cpu` gives the seconds of CPU that the event loop has used, `clock` the seconds that have passed."""

    def __init__(self, loop_cpu: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._loop_cpu, self._clock = loop_cpu, clock
        self._at, self._cpu_at = clock(), loop_cpu()
        self._busy = False
        #: Whether a log was due as soon as the previous one was clean.
        self.behind = False

    def bytes_per_second(self) -> float:
        """The rate at which the cleaner may read and write now. Any thread may call it, one at a time."""
        now = self._clock()
        if now - self._at >= _LOOK_SECONDS:
            cpu = self._loop_cpu()
            self._busy = cpu - self._cpu_at > _BUSY * (now - self._at)
            self._at, self._cpu_at = now, cpu
        return PACE if self._busy and not self.behind else FULL_SPEED


def cpu_of_this_thread() -> Callable[[], float]:
    """A function that gives, in any thread, the CPU seconds that this thread has used; 0 if the system cannot tell.

    Source: clock_getcpuclockid(3); the number of a thread's clock is part of Linux's interface to programs.
    """
    if sys.platform != "linux":
        return lambda: 0.0
    clock = ~threading.get_native_id() << 3 | _OF_ONE_THREAD
    return lambda: time.clock_gettime(clock)
