"""The start of a data directory: recovery after an unclean stop, in threads."""

from __future__ import annotations

import functools
from collections.abc import Callable

import trio

from barnabas.storage.errors import CorruptLogError
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.recovery import needs_repair, recover_partition, untouched_end
from barnabas.storage.report import Tell

# How often recovery reports its progress in the partitions that it reads.
_TELL_SECONDS = 2.0

#: Called with (done, total, what) on the event loop.
Progress = Callable[[int, int, str], None]


def is_in_order(io: Io, vnode: LocalVnode, was_clean: bool) -> bool:
    """Whether a partition needs no recovery: the last stop was clean, or nothing was ever written to it."""
    try:
        if was_clean:
            return not needs_repair(io, vnode.directory)
        end = untouched_end(io, vnode.directory, vnode.recovery_point)
    except OSError:  # recovery will meet the same error
        return False
    if end is not None:
        vnode.recovery_point = end
    return end is not None


async def recover(
    io: Io, vnodes: list[LocalVnode], limiter: trio.CapacityLimiter, tell: Tell, progress: Progress | None
) -> None:
    """Recover partitions in threads, several at a time; empties `vnodes`. One that cannot be recovered is offline."""
    done = 0
    total = len(vnodes)
    under_way: dict[str, tuple[int, int]] = {}

    async def worker() -> None:
        nonlocal done
        while vnodes:
            vnode = vnodes.pop()
            name = f"{vnode.topic}-{vnode.partition}"
            try:
                vnode.recovery_point = await trio.to_thread.run_sync(
                    recover_partition,
                    io,
                    vnode.directory,
                    vnode.recovery_point,
                    vnode.config,
                    tell,
                    functools.partial(_note_read, under_way, name),
                    limiter=limiter,
                )
            except OSError as error:
                vnode.refused("recovery", error)
                vnode.needs_recovery = True
            except CorruptLogError as error:
                vnode.fail("recovery", error)
            done += 1
            under_way.pop(name, None)
            if progress is not None:
                progress(done, total, name)
        if done == total:
            telling.cancel()

    async def tell_how_far() -> None:
        """Report the progress of the partition that has most left to read, as a large one takes long."""
        with telling:
            while progress is not None:
                await trio.sleep(_TELL_SECONDS)
                if under_way:
                    name, (read, size) = max([*under_way.items()], key=lambda item: item[1][1] - item[1][0])
                    progress(done, total, f"{name}, {read >> 20} of {size >> 20} MiB")

    telling = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell_how_far)
        for _ in range(min(total, int(limiter.total_tokens))):
            nursery.start_soon(worker)
        if not total:
            telling.cancel()


def _note_read(under_way: dict[str, tuple[int, int]], name: str, read: int, size: int) -> None:
    under_way[name] = read, size
