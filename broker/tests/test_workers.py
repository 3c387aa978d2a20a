"""Long loops in pieces."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing

from barnabas.broker.workers import PIECE, SORTED_AT_ONCE, Turns, in_order, let_go


@pytest.mark.parametrize("count", [0, 1, SORTED_AT_ONCE, SORTED_AT_ONCE + 1, 3 * SORTED_AT_ONCE])
async def test_names_are_sorted_in_pieces(count: int) -> None:
    names = [f"topic-{number}" for number in range(count)]
    random.Random(3).shuffle(names)
    assert await in_order(names) == sorted(names)


async def test_a_list_is_emptied_in_pieces() -> None:
    rows = [*range(3 * PIECE + 1)]
    await let_go(rows)
    assert rows == []


async def test_a_turn_lasts_as_long_as_its_block() -> None:
    turns = Turns(1)
    began: list[str] = []

    async def second() -> None:
        async with turns.turn("b"):
            began.append("b")

    async with trio.open_nursery() as nursery, turns.turn("a"):
        nursery.start_soon(second)
        await trio.testing.wait_all_tasks_blocked()
        assert began == []
    assert began == ["b"]


async def test_a_turn_that_fails_is_over() -> None:
    turns = Turns(1)
    with pytest.raises(ValueError, match="no"):
        async with turns.turn("a"):
            raise ValueError("no")
    with trio.fail_after(60):
        async with turns.turn("b"):
            pass
