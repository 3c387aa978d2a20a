"""Which calls of the system there are. What only Linux has is asked for here before it is used; elsewhere, and on a
Linux with musl, what all systems have does the same, with more calls.

With BARNABAS_PORTABLE=1 in the environment a Linux counts as one that has none of it, so that tests can take those ways
on any machine.
"""

from __future__ import annotations

import os
from types import ModuleType

#: Use nothing that only some systems have.
forced = os.environ.get("BARNABAS_PORTABLE") == "1"


def has(module: ModuleType, name: str) -> bool:
    """Whether a module of Python has a name that not every system gives it, and may use it."""
    return not forced and hasattr(module, name)
