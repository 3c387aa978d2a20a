"""The clock of the machine is set while the broker runs."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.clock import JUMP_MS, Clock, Jumps
from barnabas.broker.tests.conftest import Start
from barnabas.storage.local_vnode import LocalVnode
from barnabas.wire.batch import Record, build_batch

HOUR_MS = 3_600_000


class SetClock(Clock):
    """A clock that is set, and time that passes, as the test says."""

    def __init__(self) -> None:
        self.ahead_ms, self.more_ms = 0, 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms + self.more_ms

    def passed_ms(self) -> int:
        return super().passed_ms() + self.more_ms


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(-(10**12), 10**12)), max_size=5))
def test_a_jump_is_told_once_and_time_that_passes_is_none(steps: list[tuple[int, int]]) -> None:
    clock = SetClock()
    jumps = Jumps(clock)
    for passed, jump in steps:
        clock.more_ms += passed
        clock.ahead_ms += jump
        told = jumps.since_last()
        assert abs(told - jump) < 5000 if abs(jump) > JUMP_MS + 5000 else told == 0 or abs(jump) > JUMP_MS - 5000
        assert jumps.since_last() == 0


async def test_retention_leaves_a_check_out_after_the_clock_was_set_forward(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first check after the jump deletes nothing; the clock is set right before the next one."""
    clock = SetClock()
    settings = {"log_retention_check_interval_ms": "50", "log_roll_ms": str(HOUR_MS)}
    async with start(clock=clock, **settings) as broker, await broker.client() as client:
        await client.create_topic("t", retention_ms=str(3 * HOUR_MS))
        for value in (b"a", b"b"):
            assert (await client.produce("t", build_batch([Record(b"k", value, clock.wall_ms())]))).error_code == 0
            clock.more_ms += HOUR_MS + 1000  # the next record goes to a segment of its own
        seen: list[int] = []
        vnode = broker.node.vnodes["t", 0]
        apply = LocalVnode.apply_retention

        def note(vnode: LocalVnode, now_ms: int) -> None:
            seen.append(now_ms)
            apply(vnode, now_ms)

        monkeypatch.setattr(LocalVnode, "apply_retention", note)
        since_last = Jumps.since_last

        def set_right(jumps: Jumps) -> int:
            if "clock.jumped" in broker.log:
                clock.ahead_ms = 0
            return since_last(jumps)

        with monkeypatch.context() as patch:
            patch.setattr(Jumps, "since_last", set_right)
            clock.ahead_ms = 1000 * HOUR_MS
            with trio.fail_after(60):
                while len(seen) < 3 or "seconds=-3600000 " not in broker.log:
                    await trio.lowlevel.checkpoint()
        with trio.fail_after(60):
            while len(seen) < 6:
                await trio.lowlevel.checkpoint()
        assert max(seen) < clock.wall_ms() + HOUR_MS, "no check went by the wrong time"
        assert vnode.log_start_offset == 0
        assert "clock.jumped seconds=3600000 " in broker.log
        clock.ahead_ms = 1000 * HOUR_MS
        with trio.fail_after(60):  # a clock that stays there counts
            while vnode.log_start_offset == 0:
                await trio.lowlevel.checkpoint()
