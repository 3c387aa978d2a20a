"""How large requests share the memory reserved for them."""

from __future__ import annotations

import struct

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.net import buffers, frame_timer
from barnabas.broker.net.buffers import ByteBudget, Holding, RequestMemory
from barnabas.broker.net.connection import State
from barnabas.broker.tests.client import batch_of
from barnabas.broker.tests.conftest import Start, until


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small steps, so that a budget of a few hundred bytes counts as a large one."""
    monkeypatch.setattr(buffers, "STEP", 10)


class Frame:
    """A frame that is received in pieces, as its connection receives it."""

    def __init__(self, budget: ByteBudget, length: int, client: str = "one") -> None:
        self.budget, self.holding = budget, Holding(client, length)
        self.waits = False

    def come(self, size: int) -> int:
        """Make bytes available. Returns how many of them were received."""
        size = min(size, self.budget.allowed(self.holding))
        self.budget.took(self.holding, size)
        return size

    async def come_whole(self) -> None:
        """Make all of it available, and receive it as far as the budget allows."""
        while self.holding.missing:
            if not self.come(self.holding.missing):
                self.waits = True
                await self.budget.wait(self.holding)
                self.waits = False
            await trio.lowlevel.checkpoint()

    def end(self) -> None:
        self.budget.release(self.holding)


def test_what_is_announced_costs_nothing() -> None:
    budget = ByteBudget(1000)
    frames = [Frame(budget, 90_000) for _ in range(60)]
    assert sum(frame.come(8) for frame in frames) == 480
    assert budget.free == 1000 - 480


def test_a_client_has_no_more_than_it_leaves_free() -> None:
    budget = ByteBudget(1000)
    assert Frame(budget, 5000, "one").come(5000) == 500
    assert Frame(budget, 5000, "two").come(5000) == 250
    assert Frame(budget, 5000, "three").come(5000) == 125
    assert Frame(budget, 5000, "one").come(5000) == 0
    assert Frame(budget, 5000, "two").come(5000) == 0


async def test_one_frame_is_outside_of_the_budget_until_it_ends() -> None:
    budget = ByteBudget(1000)
    hoards = [Frame(budget, 5000) for _ in range(5)]
    for hoard in hoards:
        hoard.come(100)
    async with trio.open_nursery() as nursery:
        giant, larger, smaller = (Frame(budget, length) for length in (4000, 3000, 800))
        for frame in (giant, larger, smaller):
            nursery.start_soon(frame.come_whole)
            await trio.testing.wait_all_tasks_blocked()
        assert not giant.holding.missing, "nobody else waited: it goes outside"
        assert larger.waits
        assert smaller.waits
        assert Frame(budget, 5000, "two").come(5000) == 250, "others have their shares all the same"
        giant.end()
        await trio.testing.wait_all_tasks_blocked()
        assert not smaller.holding.missing, "it lacks the least"
        assert larger.waits
        smaller.end()
        await trio.testing.wait_all_tasks_blocked()
        assert not larger.holding.missing
        larger.end()
    for hoard in hoards:
        hoard.end()
    assert budget.free == 750


async def test_who_has_been_handled_comes_before_who_begins() -> None:
    budget = ByteBudget(1000)
    share, outside, known, new = (Frame(budget, length) for length in (500, 2000, 900, 50))
    new.holding.is_first = True
    assert share.come(500) == 500
    async with trio.open_nursery() as nursery:
        for frame in (outside, new, known):
            nursery.start_soon(frame.come_whole)
            await trio.testing.wait_all_tasks_blocked()
        assert new.waits
        assert known.waits
        outside.end()
        await trio.testing.wait_all_tasks_blocked()
        assert new.waits
        assert not known.holding.missing
        known.end()
    assert not new.holding.missing


async def test_what_ends_lets_in_who_waits() -> None:
    budget = ByteBudget(1000)
    first, outside, later = Frame(budget, 500), Frame(budget, 600), Frame(budget, 400)
    assert first.come(500) == 500
    async with trio.open_nursery() as nursery:
        for frame in (outside, later):
            nursery.start_soon(frame.come_whole)
            await trio.testing.wait_all_tasks_blocked()
        assert not outside.holding.missing
        assert later.waits
        first.end()
    assert not later.holding.missing
    later.end()
    outside.end()
    assert budget.free == budget.total


async def test_who_gives_up_waiting_is_not_waited_for() -> None:
    budget = ByteBudget(1000)
    share, outside, gone, next_one = (Frame(budget, length) for length in (500, 2000, 100, 200))
    assert share.come(500) == 500
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outside.come_whole)
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as given_up:
            given_up.start_soon(gone.come_whole)
            await trio.testing.wait_all_tasks_blocked()
            assert budget.is_waited_for
            given_up.cancel_scope.cancel()
        assert not budget.is_waited_for
        nursery.start_soon(next_one.come_whole)
        await trio.testing.wait_all_tasks_blocked()
        outside.end()
    assert not next_one.holding.missing


def test_small_frames_have_a_budget_of_their_own() -> None:
    memory = RequestMemory(400, small=10)
    assert memory.budget_of(10) is memory.small
    assert memory.budget_of(11) is memory.large
    assert (memory.small.total, memory.large.total) == (100, 300)
    assert RequestMemory(3).budget_of(1).total == 3, "nothing is small where there is nothing"


class Receiving:
    """Frames of several clients arrive at random times. At the end, all are complete and all memory is free."""

    def __init__(self, frames: list[tuple[int, str]], total: int) -> None:
        self.frames, self.total = frames, total

    async def run(self) -> None:
        budget = ByteBudget(self.total)

        async def one(length: int, client: str) -> None:
            frame = Frame(budget, length, client)
            await frame.come_whole()
            assert budget.free >= 0
            await trio.lowlevel.checkpoint()
            frame.end()

        async with trio.open_nursery() as nursery:
            for length, client in self.frames:
                nursery.start_soon(one, length, client)
        assert budget.free == budget.total
        assert not budget.is_waited_for


@given(st.lists(st.tuples(st.integers(1, 300), st.sampled_from("abc")), max_size=40), st.integers(0, 200))
def test_what_is_held_stays_within_the_bound_and_everybody_gets_a_turn(
    frames: list[tuple[int, str]], total: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffers, "STEP", 10)
        trio.run(Receiving(frames, total).run)


async def test_connections_that_close_give_their_bytes_back(start: Start) -> None:
    async with start(queued_max_request_bytes="20000000") as serving:
        clients = [await serving.client() for _ in range(4)]
        memory = serving.node.connections.memory
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.send_bytes, struct.pack(">i", 90 << 20) + bytes(12_000_000))
            await until(lambda: any(c.state is State.MEMORY for c in serving.node.connections))
            assert memory.large.free < memory.large.total
            nursery.cancel_scope.cancel()
        for connection in serving.node.connections:
            connection.close()
        assert memory.large.free == memory.large.total
        assert not memory.large.is_waited_for


async def test_slow_senders_of_giants_do_not_keep_a_produce_waiting(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow they are: in this test they have unlimited time."""
    for allowance in ("USUAL", "WAITED_FOR", "SMALL_WAITED_FOR"):
        monkeypatch.setattr(frame_timer, allowance, frame_timer.Allowance(1e9, 1))
    async with start(queued_max_request_bytes="100000000") as serving, await serving.client() as client:
        await client.create_topic("t")
        slow = [await serving.client() for _ in range(5)]
        for each in slow:
            await each.send_bytes(struct.pack(">i", 100_000_000) + bytes(100_000))
        for number in range(20):
            assert (await client.produce("t", batch_of(bytes(500_000)))).base_offset == number
        for each in slow:
            await each.stream.aclose()
