"""Work that gathers while a turn of the event loop handles requests, and is done once at the turn's end.

One produce request may move many partitions, one fsync may complete many answers. Connections that wait for them are
served at the end, with one read and one send instead of one for each.
"""

from __future__ import annotations

from collections.abc import Callable


class Turn:
    """A reusable context manager: `with turn:` around code that does not await."""

    __slots__ = ("_open", "_work")

    def __init__(self) -> None:
        self._open = False
        self._work: dict[Callable[[], None], None] = {}

    def soon(self, work: Callable[[], None]) -> None:
        """Call `work` once when the turn ends; outside a turn, now. It must not raise."""
        if self._open:
            self._work[work] = None
        else:
            work()

    def __enter__(self) -> None:
        self._open = True

    def __exit__(self, *_: object) -> None:
        try:
            while self._work:
                pending, self._work = self._work, {}
                for work in pending:
                    work()
        finally:
            self._open = False
