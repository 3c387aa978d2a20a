"""Arrow without NumPy and pandas: a small query is answered in half the time, and a process is 45 MB smaller.

Arrow imports NumPy if it is installed. When Arrow makes its first value of a Python object, it imports pandas, once in
a process, because the object could be one of pandas'. Here none is. So Arrow is imported, and makes its first value,
while neither can be found. Whoever needs pandas can still import it, and Arrow then uses it. Only missing values that
are objects of pandas (`NaT`, `NA`) are unknown to Arrow from then on.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder

#: Set in the environment of Spark's workers if they run the project's own functions only. Where these use pandas, they
#: give it texts and numbers.
WITHOUT_PANDAS = "BARNABAS_WITHOUT_PANDAS"
_NUMPY, _PANDAS, _ARROW = "numpy", "pandas", "pyarrow"


class _Without(MetaPathFinder):
    """Finds, before others could, that neither of these modules exists."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in self._names:
            raise ModuleNotFoundError(f"no {name} is needed here", name=name)


def import_arrow(*, numpy: bool = False) -> None:
    """Call this before anything imports Arrow, if no code in the process passes it pandas' missing values.

    With `numpy`, Arrow may be given NumPy arrays and pandas frames.
    """
    names = {each for each in (_PANDAS, *(() if numpy else (_NUMPY,))) if each not in sys.modules}
    with _without(names):
        arrow = importlib.import_module(_ARROW)
        importlib.import_module(f"{_ARROW}.compute")
        arrow.scalar(0)
        arrow.lib._pandas_api.have_pandas  # noqa: B018  (it looks, once)


def import_without_pandas(name: str) -> None:
    """Import a module that works without pandas, but would import it."""
    with _without({_PANDAS} - sys.modules.keys()):
        importlib.import_module(name)


@contextmanager
def _without(names: set[str]) -> Iterator[None]:
    finder = _Without(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
