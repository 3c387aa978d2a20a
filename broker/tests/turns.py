"""Counts how often another task has its turn: what takes long must let others in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class Turns:
    """`count` is the number of turns since the context began."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self) -> None:
        while True:
            self.count += 1
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def counted_turns() -> AsyncIterator[Turns]:
    """Count the turns of another task while the block runs."""
    turns = Turns()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run)
        await trio.lowlevel.checkpoint()
        turns.count = 0
        yield turns
        nursery.cancel_scope.cancel()
