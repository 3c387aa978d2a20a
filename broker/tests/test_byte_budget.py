"""How large requests share the memory for them."""

from __future__ import annotations

import struct

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.net import frame_timer
from barnabas.broker.net.buffers import ByteBudget
from barnabas.broker.net.connection import State
from barnabas.broker.tests.client import batch_of
from barnabas.broker.tests.conftest import Start


async def let_in(nursery: trio.Nursery, budget: ByteBudget, size: int) -> trio.Event:
    """An event that is set when these bytes are had."""
    had = trio.Event()

    async def ask() -> None:
        await budget.acquire(size)
        had.set()

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    return had


async def test_small_requests_do_not_wait_for_large_ones() -> None:
    budget = ByteBudget(400, small=10)
    async with trio.open_nursery() as nursery:
        assert (await let_in(nursery, budget, 1000)).is_set(), "a giant has all but the quarter of the small ones"
        waits = await let_in(nursery, budget, 50)
        assert not waits.is_set()
        for _ in range(10):
            assert (await let_in(nursery, budget, 10)).is_set()
        assert not (await let_in(nursery, budget, 10)).is_set(), "the quarter is used up"
        budget.release(1000)
        await trio.testing.wait_all_tasks_blocked()
        assert waits.is_set()
        nursery.cancel_scope.cancel()


async def test_a_stream_of_small_requests_does_not_keep_a_large_one_waiting() -> None:
    budget = ByteBudget(400, small=10)
    async with trio.open_nursery() as nursery:
        for _ in range(40):
            assert (await let_in(nursery, budget, 10)).is_set()
        large = await let_in(nursery, budget, 200)
        for _ in range(30):  # each that ends is followed by another
            budget.release(10)
            await let_in(nursery, budget, 10)
        assert large.is_set()
        nursery.cancel_scope.cancel()


class Grants:
    """Acquire and release at random; what is held never exceeds the budget, and at the end all is free."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    async def run(self) -> None:
        budget = ByteBudget(100, small=10)
        held = 0

        async def one(size: int) -> None:
            nonlocal held
            await budget.acquire(size)
            share = min(size, 100 if size <= 10 else 75)
            held += share
            assert held <= 100
            await trio.lowlevel.checkpoint()
            held -= share
            budget.release(size)

        async with trio.open_nursery() as nursery:
            for size in self.sizes:
                nursery.start_soon(one, size)
        assert budget.free == budget.total
        assert not budget.is_waited_for


@given(st.lists(st.integers(1, 300), max_size=40))
def test_what_is_held_stays_within_the_budget_and_everybody_gets_a_turn(sizes: list[int]) -> None:
    trio.run(Grants(sizes).run)


async def test_a_connection_that_closes_as_it_is_granted_gives_its_bytes_back(start: Start) -> None:
    async with start(queued_max_request_bytes="20000000") as serving:
        first, second = await serving.client(), await serving.client()
        await first.send_bytes(struct.pack(">i", 90 << 20) + bytes(100_000))
        await second.send_bytes(struct.pack(">i", 80 << 20) + bytes(100_000))
        budget = serving.node.connections.budget
        with trio.fail_after(60):
            while not budget.is_waited_for:
                await trio.lowlevel.checkpoint()
        (holds,) = [c for c in serving.node.connections if c.granted_bytes]
        (waits,) = [c for c in serving.node.connections if c.state is State.MEMORY]
        holds.close()
        waits.close()  # its bytes were granted in this pass, and it does not know yet
        with trio.fail_after(60):
            while budget.free < budget.total:
                await trio.lowlevel.checkpoint()
        assert not budget.is_waited_for


async def test_slow_senders_of_giants_do_not_keep_a_produce_waiting(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow they are: here they have all the time that they want."""
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
