"""The pauses between attempts at something that runs until it is stopped."""

from __future__ import annotations

import random

import trio

_FIRST_SECONDS, _MOST_SECONDS = 0.5, 30.0
_MOST_DOUBLINGS = 8


class Pauses:
    """Each pause is twice as long as the one before, up to 30 s. Half of it is random.

    An attempt that ran for longer than that counts as a success: the pauses start again from the shortest.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._began = 0.0

    def begin(self) -> None:
        """An attempt begins."""
        self._began = trio.current_time()

    def next(self) -> float:
        """The attempt has failed: how many seconds to wait."""
        lasted = trio.current_time() - self._began > _MOST_SECONDS
        self._failures = 1 if lasted else self._failures + 1
        most = min(_FIRST_SECONDS * (1 << min(self._failures - 1, _MOST_DOUBLINGS)), _MOST_SECONDS)
        return most * random.uniform(0.5, 1)
