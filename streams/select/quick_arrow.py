"""Arrow without pandas: a command that answers one small query starts in half the time.

When Arrow converts its first Python value in a process, it tries to import pandas once, as the value could be one of
pandas'. No value here is. So that attempt is made while pandas cannot be found. If Arrow changes this, pandas is
imported, and nothing else changes.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

import pyarrow as pa

_PANDAS = "pandas"


class _Without(MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == _PANDAS:
            raise ModuleNotFoundError(f"no {_PANDAS} is needed here", name=_PANDAS)


def spare_pandas() -> None:
    """Call before Arrow has made a value in this process, if nothing in it is to hand Arrow a frame of pandas."""
    if _PANDAS in sys.modules:
        return
    finder = _Without()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)
