"""Deadlines that are moved, cancelled or fired; and the task that fires them."""

from __future__ import annotations

import trio
import trio.testing

from barnabas.groupcoord.deadlines import NEVER, Deadlines
from barnabas.groupcoord.tests.harness import Clock
from barnabas.groupcoord.timers import run_timers


def test_a_deadline_that_moves_later_costs_one_heap_entry() -> None:
    clock = Clock()
    fired: list[float] = []
    deadlines = Deadlines(clock)
    deadline = deadlines.new(lambda: fired.append(clock.now))
    for second in range(100):
        clock.now = float(second)
        deadline.set(second + 200)
    assert len(deadlines) == 1
    assert deadlines.next() == 200  # earlier than due, never later
    clock.now = 200
    deadlines.fire_due()
    assert not fired
    assert deadlines.next() == 299
    clock.now = 299
    deadlines.fire_due()
    assert fired == [299]
    assert deadlines.next() == NEVER


def test_deadlines_cancelled_moved_earlier_or_dropped() -> None:
    clock = Clock()
    fired: list[str] = []
    moved: list[float] = []
    deadlines = Deadlines(clock)
    deadlines.on_earlier = lambda: moved.append(deadlines.next())
    early, late, gone = (deadlines.new(lambda name=name: fired.append(name)) for name in ("early", "late", "gone"))  # type: ignore[misc]
    early.set(50)
    early.set(10)
    late.set(20)
    late.cancel()
    late.set(30)
    gone.set(5)
    gone.drop()
    assert moved == [50, 10, 5]
    clock.now = 25
    deadlines.fire_due()
    assert fired == ["early"]
    clock.now = 60
    deadlines.fire_due()
    assert fired == ["early", "late"]


def test_one_that_fires_may_set_itself_for_now() -> None:
    clock = Clock()
    deadlines = Deadlines(clock)
    fired: list[int] = []

    def again() -> None:
        fired.append(1)
        deadline.set(clock.now)

    deadline = deadlines.new(again)
    deadline.set(0)
    deadlines.fire_due()
    assert len(fired) == 1
    deadlines.fire_due()
    assert len(fired) == 2


def test_those_that_are_given_up_keep_no_memory() -> None:
    """A million long polls whose clients were answered early."""
    deadlines = Deadlines(lambda: 0.0)
    kept = [deadlines.at(1e6 + number, lambda: None) for number in range(50)]
    for number in range(10_000):
        deadlines.at(1e6, lambda: None).drop()
        kept[number % 50].set(1e6 - number)  # moved earlier: its old entry is also void
        assert len(deadlines) < 300
    assert deadlines.next() == 1e6 - 9_999


def test_dropped_twice_or_while_it_fires_counts_once() -> None:
    clock = Clock()
    deadlines = Deadlines(clock)
    fired: list[str] = []

    def on_first() -> None:
        fired.append("first")
        first.drop()
        second.drop()

    first = deadlines.at(1, on_first)
    second = deadlines.at(1, lambda: fired.append("second"))
    gone = deadlines.at(1, lambda: fired.append("gone"))
    gone.drop()
    gone.drop()
    clock.now = 1
    deadlines.fire_due()
    assert fired == ["first"]
    assert len(deadlines) == 0
    assert deadlines.next() == NEVER


def test_what_fires_together_fires_in_one_turn() -> None:
    clock = Clock()
    seen: list[str] = []

    class Turns:
        def __enter__(self) -> None:
            seen.append("begin")

        def __exit__(self, *error: object) -> None:
            seen.append("end")

    deadlines = Deadlines(clock, around=Turns())
    for name in ("a", "b"):
        deadlines.at(1, lambda name=name: seen.append(name))  # type: ignore[misc]
    clock.now = 1
    deadlines.fire_due()
    assert seen == ["begin", "a", "b", "end"]


async def test_the_task_meets_them_at_their_time_and_in_order(autojump_clock: trio.testing.MockClock) -> None:
    deadlines = Deadlines(trio.current_time)
    met: list[tuple[str, float]] = []
    begin = trio.current_time()

    def note(name: str) -> None:
        met.append((name, trio.current_time() - begin))

    async with trio.open_nursery() as nursery:
        await nursery.start(run_timers, deadlines)
        await trio.testing.wait_all_tasks_blocked()
        deadlines.at(begin + 5, lambda: note("late"))
        given_up = deadlines.at(begin + 2, lambda: note("given up"))
        deadlines.at(begin + 1, lambda: note("soon"))
        given_up.drop()
        await trio.sleep(10)
        assert met == [("soon", 1), ("late", 5)]
        assert len(deadlines) == 0
        nursery.cancel_scope.cancel()
