"""For trio programs: the task that fires deadlines, and the loading of a coordinator's partitions."""

from __future__ import annotations

from typing import Protocol, TypeVar

import trio

from barnabas.groupcoord.deadlines import Deadlines
from barnabas.groupcoord.log.log_store import Image, LogStore

I = TypeVar("I", bound=Image)  # noqa: E741
I_contra = TypeVar("I_contra", bound=Image, contravariant=True)
L = TypeVar("L")


class Loads(Protocol[L, I_contra]):
    """The part of a coordinator that loads partitions."""

    def begin_load(self, partition: int) -> L: ...

    def abandon_load(self, loading: L) -> None: ...

    def finish_load(self, loading: L, image: I_contra) -> None: ...

    def unload(self, partition: int) -> None: ...


async def run_timers(deadlines: Deadlines, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Fire due deadlines until cancelled. Their clock must be `trio.current_time`."""
    moved = trio.Event()

    def wake() -> None:
        moved.set()

    deadlines.on_earlier = wake
    task_status.started()
    try:
        while True:
            moved = trio.Event()
            with trio.move_on_at(deadlines.next()):
                await moved.wait()
            deadlines.fire_due()
    finally:
        deadlines.on_earlier = None


async def load_partition(
    coordinator: Loads[L, I],
    store: LogStore[I],
    partition: int,
    *,
    limiter: trio.CapacityLimiter | None = None,
) -> None:
    """Read a partition of a coordinator's topic in threads, and pass it to the coordinator.

    Raises KafkaError if it cannot be read, and OSError if the disk fails; the partition is then not owned.
    """
    loading = coordinator.begin_load(partition)
    try:
        replay = store.replay(partition)
        while (piece := replay.next()) is not None:
            await trio.to_thread.run_sync(replay.take, piece, limiter=limiter)
        await trio.lowlevel.checkpoint()
    except BaseException:
        coordinator.abandon_load(loading)
        raise
    coordinator.finish_load(loading, replay.image)
