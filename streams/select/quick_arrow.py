"""Arrow without pandas: a command that answers one small query starts in half the time.

The first value that Arrow makes of Python's has it look for pandas, once in a process, as it could be one of pandas'.
Nothing here is. So it looks while pandas cannot be found. Where that changes, pandas is imported, and nothing else.
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
