"""An event loop beside a thread that writes: neither that thread nor the garbage collector may hold it up for long."""

from __future__ import annotations

import gc
import sys

#: How long the thread that builds batches runs before the event loop gets its turn.
SWITCH_SECONDS = 0.0005


def prepare() -> None:
    """Call this when everything is imported. Otherwise a full collection visits every module, for 10 to 30 ms."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()
