"""How Python collects garbage in a broker.

CPython examines all objects of a generation while every client waits. So full collections are rare, and what stays is
kept out of them. What nothing refers to is gone at once, and closes its file.

PyPy collects in steps of some milliseconds, and needs no thresholds. But it closes a file to which nothing refers only
after a whole collection. So the steps go on while files are given up.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

# A full collection starts after about two million new objects: it examines all objects of all large requests. A
# collection of the middle generation examines at most 60,000 objects.
THRESHOLDS = (10_000, 5, 40)
# By how many more partitions and open logs there must be. Each has some 20 objects that collections examine.
EVERY = 1000
_HAS_GENERATIONS = hasattr(gc, "freeze")
_collect_step: Callable[[], Any] | None = getattr(gc, "collect_step", None)


def collect_seldom() -> None:
    """Set the thresholds of this process."""
    if _HAS_GENERATIONS:
        gc.set_threshold(*THRESHOLDS)


def keep_all() -> None:
    """Leave all objects that exist now out of later collections."""
    if _HAS_GENERATIONS:
        gc.freeze()


def step() -> None:
    """Go on with PyPy's collection."""
    if _collect_step is not None:
        _collect_step()


def steps() -> Iterator[None]:
    """On PyPy, collect all that nothing refers to now. Something else may run between two steps."""
    if _collect_step is not None:
        for _ in range(2):  # what is given up during a collection is found by the next one
            while not _collect_step().major_is_done:
                yield


class KeptOut:
    """Partitions and their open logs are kept out of collections. They stay as long as the broker, and a collection
    that examines those of 100,000 topics takes a second.

    Inside this context, a collection that finds many more partitions and open logs than before examines none of
    the objects that exist by then, and no later one examines them either.

    `count` gives the number of partitions and open logs.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        self._count, self._known = count, 0

    def __enter__(self) -> None:
        if _HAS_GENERATIONS:
            gc.callbacks.append(self._collecting)

    def __exit__(self, *_: object) -> None:
        if _HAS_GENERATIONS:
            gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"]:
            count = self._count()
            if count >= self._known + EVERY:
                gc.freeze()
                self._known = count
            self._known = min(self._known, count)
