"""Pages of long lists, filtered and sorted in small pieces, so that a hundred thousand rows do not delay other
requests."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from barnabas.broker.workers import Yielder

T = TypeVar("T")
PIECE = 500


async def those(rows: Iterable[T], wanted: Callable[[T], bool]) -> list[T]:
    """The rows for which a condition holds."""
    yielder, found = Yielder(), []
    for index, row in enumerate(rows):
        if wanted(row):
            found.append(row)
        if not index % 64:
            await yielder()
    return found


async def page_of(
    rows: Sequence[T], key: Callable[[T], Any], *, start: int, limit: int, reverse: bool = False
) -> list[T]:
    """`sorted(rows, key=key, reverse=reverse)[start : start + limit]`."""
    yielder, pieces, found = Yielder(), [], []
    for first in range(0, len(rows), PIECE):
        pieces.append(sorted(rows[first : first + PIECE], key=key, reverse=reverse))
        await yielder()
    for index, row in enumerate(heapq.merge(*pieces, key=key, reverse=reverse)):
        if index >= start + limit:
            break
        if index >= start:
            found.append(row)
        if not index % 64:
            await yielder()
    return found
