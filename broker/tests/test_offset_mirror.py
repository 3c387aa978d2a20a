"""The mirror of offsets, without ZooKeeper: the test provides `write`."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from barnabas.broker.log import EventLog
from barnabas.broker.moving.offset_mirror import MOST_REFUSED, OffsetMirror, Wanted
from barnabas.broker.moving.zookeeper_offsets import due
from barnabas.client.zookeeper.offsets import Found, Place, Write
from barnabas.client.zookeeper.session import LostError
from barnabas.groupcoord.deadlines import Deadlines
from barnabas.groupcoord.timers import run_timers

A, B, C = (("g", ("t", n)) for n in range(3))


class ZooKeeper:
    """The written batches. Each write waits until the event `answers` is set."""

    def __init__(self) -> None:
        self.batches: list[list[Wanted]] = []
        self.nodes: dict[Place, int | None] = {}
        self.failures: dict[Place, str] = {}
        self.lost: str | None = None
        self.answers = trio.Event()
        self.answers.set()
        self.meanwhile: Callable[[], None] = lambda: None  # what other clients do while a batch is written

    async def write(self, batch: list[Wanted]) -> dict[Place, str]:
        self.batches.append(batch)
        self.meanwhile()
        await self.answers.wait()
        if self.lost:
            raise LostError(self.lost)
        self.nodes |= {each.place: each.offset for each in batch if each.place not in self.failures}
        return {each.place: self.failures[each.place] for each in batch if each.place in self.failures}


class World:
    """A running mirror, and what its callers were told."""

    def __init__(self, logged: Callable[[int], Iterator[Wanted]], **options: Any) -> None:
        self.zookeeper = ZooKeeper()
        self.text = io.StringIO()
        self.deadlines = Deadlines(trio.current_time)
        self.mirror = OffsetMirror(
            self.zookeeper.write, logged, self.deadlines, lambda: 2.0, EventLog(self.text), **options
        )
        self.told: list[tuple[str, str | None]] = []

    def wait(self, name: str, *places: Place) -> None:
        self.mirror.wait(places, lambda reason: self.told.append((name, reason)))


@asynccontextmanager
async def running(
    logged: Callable[[int], Iterator[Wanted]] = lambda partition: iter(()), **options: Any
) -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        world = World(logged, **options)
        await nursery.start(run_timers, world.deadlines)
        nursery.start_soon(world.mirror.run)
        await wait_all_tasks_blocked()
        yield world
        nursery.cancel_scope.cancel()


@pytest.fixture
def autojump_clock() -> MockClock:
    return MockClock(autojump_threshold=0)


async def test_who_waits_hears_when_it_is_written(autojump_clock: MockClock) -> None:
    async with running() as world:
        world.mirror.mark(A, 1)
        world.wait("one", A)
        assert world.told == []
        await wait_all_tasks_blocked()
        assert (world.told, world.zookeeper.nodes) == ([("one", None)], {A: 1})
        world.wait("nothing to wait for", A)
        assert world.told[1:] == [("nothing to wait for", None)]


async def test_what_changes_while_it_is_on_its_way_is_written_once_more(autojump_clock: MockClock) -> None:
    async with running() as world:
        world.zookeeper.answers = trio.Event()
        world.mirror.mark(A, 1)
        world.wait("first", A)
        await wait_all_tasks_blocked()
        for offset in range(2, 100):
            world.mirror.mark(A, offset)
        world.wait("last", A)
        assert world.mirror.behind == 1
        world.zookeeper.answers.set()
        await wait_all_tasks_blocked()
        assert [[each.offset for each in batch] for batch in world.zookeeper.batches] == [[1], [99]]
        assert world.told == [("first", None), ("last", None)]


async def test_what_another_coordinator_has_is_let_go(autojump_clock: MockClock) -> None:
    """Callers that wait are told so. The new coordinator compares the offsets in the log."""
    other: Place = ("other", ("t", 0))
    async with running() as world:
        world.zookeeper.answers = trio.Event()
        world.mirror.mark(A, 1)
        await wait_all_tasks_blocked()  # it is in flight from now on
        world.mirror.mark(B, 2)
        world.mirror.mark(other, 3)
        world.wait("in flight", A)
        world.wait("marked", B)
        world.mirror.compare(7)
        world.mirror.let_go(7, lambda group: group == "g")
        assert [name for name, reason in world.told if reason] == ["marked", "in flight"]
        assert (world.mirror.is_let_go(A), world.mirror.is_let_go(other), world.mirror.is_comparing) == (
            True,
            False,
            False,
        )
        world.zookeeper.lost = "no answer"  # entries that were in flight are not tried again
        world.zookeeper.answers.set()
        await wait_all_tasks_blocked()
        world.zookeeper.lost = None
        while world.mirror.behind:
            await trio.sleep(1)
        assert world.zookeeper.nodes == {other: 3}
        assert not world.mirror.is_let_go(A)


async def test_after_the_timeout_nobody_waits_until_all_is_written(autojump_clock: MockClock) -> None:
    async with running() as world:
        world.zookeeper.answers = trio.Event()
        world.mirror.mark(A, 1)
        began = trio.current_time()
        world.wait("waits", A)
        while not world.told:
            await trio.sleep(0.01)
        assert world.told[0][1] is not None
        assert trio.current_time() - began == pytest.approx(2, abs=0.1)
        world.mirror.mark(B, 2)
        world.wait("does not", B)
        assert [name for name, _ in world.told] == ["waits", "does not"]
        assert world.mirror.is_behind
        world.zookeeper.answers.set()
        await wait_all_tasks_blocked()
        assert not world.mirror.is_behind
        assert world.zookeeper.nodes == {A: 1, B: 2}
        assert world.text.getvalue().count("offsets.zookeeper.behind") == 1
        assert world.text.getvalue().count("offsets.zookeeper.in_step") == 1


async def test_where_clients_commit_all_the_time_it_is_in_step_too(autojump_clock: MockClock) -> None:
    async with running() as world:
        world.zookeeper.lost = "gone"
        world.mirror.mark(A, 1)
        await wait_all_tasks_blocked()
        assert (world.mirror.is_behind, world.mirror.unawaited) == (True, 1)
        states: list[tuple[bool, int]] = []

        def commit() -> None:
            states.append((world.mirror.is_behind, world.mirror.unawaited))
            if len(states) < 10:
                world.mirror.mark(B, len(states))
                world.wait(f"{len(states)}", B)

        world.zookeeper.lost, world.zookeeper.meanwhile = None, commit
        await trio.sleep(10)
        assert states[0] == (True, 1)
        assert states[2:] == [(False, 0)] * 8, "what somebody waits for is nobody's gap"
        assert world.zookeeper.nodes == {A: 1, B: 9}


async def test_a_lost_connection_loses_nothing(autojump_clock: MockClock) -> None:
    async with running() as world:
        world.zookeeper.lost = "the connection was lost"
        world.mirror.mark(A, 1)
        world.mirror.mark(B, 5)
        world.wait("one", A)
        await wait_all_tasks_blocked()
        assert world.told == [("one", "the connection was lost")]
        world.mirror.mark(A, 3)
        world.mirror.mark(B, None)
        assert (world.mirror.behind, world.mirror.down) == (2, "the connection was lost")
        world.zookeeper.lost = None
        await trio.sleep(10)
        assert world.zookeeper.nodes == {A: 3, B: None}
        assert (world.mirror.behind, world.mirror.down, world.mirror.is_behind) == (0, None, False)


async def test_what_was_refused_to_its_client_is_not_written_later(autojump_clock: MockClock) -> None:
    async with running() as world:
        world.zookeeper.lost = "gone"
        world.mirror.mark(A, 1, only_asked=True)
        world.wait("one", A)
        world.mirror.mark(B, 2)
        await wait_all_tasks_blocked()
        world.zookeeper.lost = None
        await trio.sleep(10)
        assert world.zookeeper.nodes == {B: 2}


async def test_the_log_is_compared_to_its_end_beside_what_is_marked(autojump_clock: MockClock) -> None:
    def logged(partition: int) -> Iterator[Wanted]:
        for number in range(1200):
            yield Wanted((f"g{partition}", ("t", number)), number, since_ms=7)

    async with running(logged) as world:
        world.zookeeper.lost = "not yet"
        for partition in range(3):
            world.mirror.compare(partition)
        await wait_all_tasks_blocked()
        assert world.mirror.is_comparing
        assert not world.mirror.in_step(2)
        world.zookeeper.lost = None
        world.mirror.mark(A, 4)
        await trio.sleep(10)
        assert not world.mirror.is_comparing
        assert len(world.zookeeper.nodes) == 3 * 1200 + 1
        assert world.zookeeper.nodes["g2", ("t", 1199)] == 1199
        assert max(map(len, world.zookeeper.batches)) <= 1000
        assert not world.mirror.is_behind


async def test_too_many_marks_become_a_comparison(autojump_clock: MockClock) -> None:
    def logged(partition: int) -> Iterator[Wanted]:
        return iter([Wanted(A, 7, since_ms=1)])

    async with running(logged, most_marks=10) as world:
        world.zookeeper.answers = trio.Event()
        for number in range(10):
            world.mirror.mark(("g", ("t", number)), 1)
        assert world.mirror.is_full
        world.mirror.forget_marks([0])
        assert world.mirror.behind == 0
        world.zookeeper.answers.set()
        await wait_all_tasks_blocked()
        assert world.zookeeper.nodes == {A: 7}


async def test_what_cannot_be_written_is_told_once_and_counted(autojump_clock: MockClock) -> None:
    async with running() as world:
        world.zookeeper.failures = {A: "no"}
        world.mirror.mark(A, 1)
        world.mirror.mark(B, 1)
        world.wait("one", A)
        world.wait("other", B)
        await wait_all_tasks_blocked()
        assert world.told == [("one", "no"), ("other", None)]
        assert world.mirror.refused == {A: "no"}
        for number in range(MOST_REFUSED + 5):
            world.mirror.refuse((f"g{number}", ("t", 0)), "no name")
        assert (len(world.mirror.refused), world.mirror.refused_more) == (MOST_REFUSED, True)
        assert world.text.getvalue().count("offsets.zookeeper.refused") == 1
        world.zookeeper.failures = {}
        world.mirror.mark(A, 2)
        await wait_all_tasks_blocked()
        assert A not in world.mirror.refused


@pytest.mark.parametrize(
    ("wanted", "found", "written"),
    [
        (Wanted(A, 5), None, Write(5, None)),
        (Wanted(A, 5), Found(5, 1, 0), None),
        (Wanted(A, 5), Found(9, 1, 0), Write(5, Found(9, 1, 0))),
        (Wanted(A, None), None, None),
        (Wanted(A, None), Found(9, 1, 0), Write(None, Found(9, 1, 0))),
        (Wanted(A, 5, since_ms=100), Found(4, 1, 200), Write(5, Found(4, 1, 200))),
        (Wanted(A, 5, since_ms=100), Found(9, 1, 200), None),
        (Wanted(A, 5, since_ms=100), Found(9, 1, 50), Write(5, Found(9, 1, 50))),
    ],
)
def test_what_is_due(wanted: Wanted, found: Found | None, written: Write | None) -> None:
    assert due(wanted, found) == written
