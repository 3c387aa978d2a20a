"""An event loop beside a thread that writes: neither that thread nor the collector of garbage holds it for long."""

from __future__ import annotations

import gc
import sys

#: The thread that makes batches gives way to the event loop after so long.
SWITCH_SECONDS = 0.0005


def prepare() -> None:
    """Call it when all is imported. A full collection of what is there looks at every module, for 10 to 30 ms."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()
