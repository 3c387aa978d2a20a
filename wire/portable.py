"""Finds out which system calls exist.

Code asks here before it uses anything that only Linux has. Elsewhere, and on a Linux with musl, portable calls do the
same; more of them are needed. With BARNABAS_PORTABLE=1 in the environment a Linux counts as having no such feature, so
that tests can take the portable code paths on any machine.
"""

from __future__ import annotations

import os
from types import ModuleType

#: Use only what all systems have.
forced = os.environ.get("BARNABAS_PORTABLE") == "1"


def has(module: ModuleType, name: str) -> bool:
    """Whether a Python module has, and may use, a name that not every system provides."""
    return not forced and hasattr(module, name)
