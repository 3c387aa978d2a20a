"""Compaction keeps a pace while the event loop is busy, unless it falls behind."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest
import trio

from barnabas.storage.cleaner import Cleaner, CleanerSettings
from barnabas.storage.pace import FULL_SPEED, PACE, Pace, cpu_of_this_thread
from barnabas.storage.tests.compacting import CONFIG, filled
from barnabas.storage.tests.support import NOW, RecordedEvents, created
from barnabas.storage.vnode import Vnode


class Loop:
    """An event loop that uses a share of the processor."""

    def __init__(self) -> None:
        self.now = self.cpu = 100.0
        self.pace = Pace(lambda: self.cpu, lambda: self.now)

    def after(self, seconds: float, share: float) -> float:
        self.now += seconds
        self.cpu += share * seconds
        return self.pace.bytes_per_second()


def test_a_busy_loop_slows_the_cleaner_and_a_quiet_one_does_not() -> None:
    loop = Loop()
    assert loop.after(1, 0.01) == FULL_SPEED
    assert loop.after(0.06, 0.9) == PACE
    assert loop.after(0.01, 0) == PACE  # too short a time to say
    assert loop.after(0.06, 0) == FULL_SPEED


def test_a_cleaner_that_is_behind_does_not_wait() -> None:
    loop = Loop()
    assert loop.after(1, 0.9) == PACE
    loop.pace.behind = True
    assert loop.after(1, 0.9) == FULL_SPEED


async def test_a_log_that_is_due_when_another_one_is_clean_is_cleaned_at_full_speed(tmp_path: Path) -> None:
    vnodes = []
    for number in range(3):
        vnode = created(tmp_path / f"t{number}-0", CONFIG)
        vnode.topic = f"t{number}"
        filled(vnode, 40)
        vnodes.append(vnode)
    pace = Pace(lambda: 0)
    seen: list[bool] = []
    settings = CleanerSettings(backoff_seconds=0)
    events = RecordedEvents()

    with trio.CancelScope() as done:

        def tell(event: str, /, **fields: object) -> None:
            events(event, **fields)
            seen.append(pace.behind)

        class Watching(Cleaner):
            async def filthiest(self) -> Vnode | None:
                found = await super().filthiest()
                if found is None and len(seen) == 3:
                    done.cancel()
                return found

        cleaner = Watching({(each.topic, 0): each for each in vnodes}, lambda: settings, lambda: NOW, tell, pace=pace)
        await cleaner.run()
    assert seen == [False, True, True]
    assert events.named("log.cleaned")


@pytest.mark.skipif(sys.platform == "darwin", reason="the system does not tell the CPU of another thread")
def test_the_cpu_of_one_thread_is_told_in_another() -> None:
    cpu = cpu_of_this_thread()
    before = cpu()
    until = time.thread_time() + 0.05
    while time.thread_time() < until:
        pass
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(cpu()))
    thread.start()
    thread.join()
    assert found[0] - before >= 0.05
