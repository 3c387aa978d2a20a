"""Partitions and their open logs are kept out of garbage collections. They stay as long as the broker, and a collection
that examines those of 100,000 topics takes a second, while every client waits."""

from __future__ import annotations

import gc
from collections.abc import Callable

# By how many more partitions and open logs there must be. Each has some 20 objects that collections examine.
EVERY = 1000


class KeptOut:
    """Inside this context, a collection that finds many more partitions and open logs than before examines none of
    the objects that exist by then, and no later one examines them either.

    `count` gives the number of partitions and open logs.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        self._count, self._known = count, 0

    def __enter__(self) -> None:
        gc.callbacks.append(self._collecting)

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"]:
            count = self._count()
            if count >= self._known + EVERY:
                gc.freeze()
                self._known = count
            self._known = min(self._known, count)
