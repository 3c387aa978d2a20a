"""Arrow without NumPy and pandas: a command that answers one small query starts in half the time.

Arrow imports NumPy where it finds it. The first value that it makes of Python's has it look for pandas, once in a
process, as it could be one of pandas'. Nothing here is. So Arrow is imported, and looks, while neither can be found.
Where that changes, they are imported, and nothing else.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder

_NUMPY, _PANDAS, _ARROW = "numpy", "pandas", "pyarrow"


class _Without(MetaPathFinder):
    """Finds, before others could, that neither of these modules exists."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in self._names:
            raise ModuleNotFoundError(f"no {name} is needed here", name=name)


def import_arrow() -> None:
    """Call this before anything imports Arrow, if no code in the process passes it NumPy arrays or pandas frames."""
    names = {each for each in (_NUMPY, _PANDAS) if each not in sys.modules}
    with _without(names):
        arrow = importlib.import_module(_ARROW)
        importlib.import_module(f"{_ARROW}.compute")
        arrow.scalar(0)
        arrow.lib._pandas_api.have_pandas  # noqa: B018  (it looks, once)


@contextmanager
def _without(names: set[str]) -> Iterator[None]:
    finder = _Without(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
