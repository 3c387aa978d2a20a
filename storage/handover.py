"""Close logs with all their data on disk, at a stop, or before other nodes lead their partitions.

A resigned log refuses all calls. It is closed after its jobs in threads have ended, so that none of them writes into
the folder when the next node opens it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import trio

from barnabas.storage.errors import NotLeaderError, StorageError
from barnabas.storage.flusher import HOLD_SECONDS
from barnabas.storage.io import Io, a_few_at_a_time, sync_all
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.unflushed import LocalFlushJob


async def resign(vnodes: Iterable[LocalVnode]) -> None:
    """Refuse all calls from now on, and wait until the running jobs have ended."""
    until = time.perf_counter() + HOLD_SECONDS
    for vnode in vnodes:
        vnode.resign(NotLeaderError(f"another node will lead {vnode.topic}-{vnode.partition}"))
        until = await _breathe(until)
    for vnode in vnodes:
        if not vnode.is_idle:
            idle = trio.Event()
            vnode.on_idle = idle.set
            await idle.wait()


async def put_away(io: Io, vnodes: Iterable[LocalVnode], limiter: trio.CapacityLimiter) -> set[LocalVnode]:
    """Flush and close logs. Returns those with all data on disk. The flusher must no longer use them."""

    def flush(owed: tuple[LocalVnode, LocalFlushJob]) -> OSError | None:
        try:
            owed[1].run()
        except OSError as error:
            return error
        return None

    jobs: list[tuple[LocalVnode, LocalFlushJob]] = []
    until = time.perf_counter() + HOLD_SECONDS
    for vnode in vnodes:
        until = await _breathe(until)
        job = vnode.begin_last_flush()
        if job is not None:
            jobs.append((vnode, job))
    errors = await trio.to_thread.run_sync(a_few_at_a_time, flush, jobs, limiter=limiter)
    unflushed = set()
    for (vnode, job), error in zip(jobs, errors, strict=True):
        until = await _breathe(until)
        vnode.end_flush(job, error)
        if error is not None:
            unflushed.add(vnode)
    whole = set()
    paths: list[str] = []
    for vnode in vnodes:
        until = await _breathe(until)
        try:
            if vnode.error is not None and not vnode.is_resigned:
                raise vnode.error
            paths += vnode.close()
        except StorageError:
            continue
        if not vnode.needs_recovery and vnode not in unflushed:
            whole.add(vnode)
    try:
        await trio.to_thread.run_sync(sync_all, io, paths, limiter=limiter)
    except OSError:
        return set()
    return whole


async def sweep(vnodes: Iterable[LocalVnode], limiter: trio.CapacityLimiter) -> set[LocalVnode]:
    """Delete files that jobs have left in the folders of resigned logs. Returns the logs without such files."""

    def work() -> set[LocalVnode]:
        clear = set()
        for vnode in vnodes:
            try:
                vnode.sweep()
            except OSError:  # the next node deletes them
                continue
            clear.add(vnode)
        return clear

    return await trio.to_thread.run_sync(work, limiter=limiter)


async def _breathe(until: float) -> float:
    """Let other tasks run if it is time. Returns the time at which to do so again."""
    if time.perf_counter() < until:
        return until
    await trio.lowlevel.checkpoint()
    return time.perf_counter() + HOLD_SECONDS
