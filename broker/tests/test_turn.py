"""Work at the end of a turn, and calls at a later time."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from barnabas.broker.deadlines import Deadlines
from barnabas.broker.turn import Turn


def test_work_is_done_once_at_the_end_of_the_turn_and_at_once_outside() -> None:
    turn, done = Turn(), []

    def work() -> None:
        done.append("work")
        turn.soon(more)

    def more() -> None:
        done.append("more")

    with turn:
        turn.soon(work)
        turn.soon(work)
        assert done == []
    assert done == ["work", "more"]
    turn.soon(more)
    assert done == ["work", "more", "more"]


def test_a_turn_that_fails_still_serves_those_who_wait() -> None:
    turn, done = Turn(), []

    def fails() -> None:
        with turn:
            turn.soon(lambda: done.append("served"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert done == ["served"]


async def test_calls_come_at_their_time_and_in_order(autojump_clock: trio.testing.MockClock) -> None:
    deadlines = Deadlines()
    met: list[tuple[str, float]] = []
    begin = trio.current_time()

    def note(name: str) -> None:
        met.append((name, trio.current_time() - begin))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        await trio.testing.wait_all_tasks_blocked()
        deadlines.at(begin + 5, lambda: note("late"))
        given_up = deadlines.at(begin + 2, lambda: note("given up"))
        deadlines.at(begin + 1, lambda: note("soon"))
        given_up.cancel()
        given_up.cancel()
        await trio.sleep(10)
        assert met == [("soon", 1), ("late", 5)]
        assert len(deadlines) == 0
        nursery.cancel_scope.cancel()


async def test_calls_that_are_given_up_keep_no_memory(autojump_clock: trio.testing.MockClock) -> None:
    deadlines = Deadlines()
    far = trio.current_time() + 1e6
    for _ in range(10_000):
        deadlines.at(far, lambda: None).cancel()
    kept = deadlines.at(far, lambda: None)
    assert len(deadlines) == 1
    assert len(deadlines._heap) < 200
    kept.cancel()
