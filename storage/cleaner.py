"""The log cleaner: compacts the filthiest logs, in threads, a few at a time (`log.cleaner.*`).

As in Kafka, a log is due when its dirty part is more than `min.cleanable.dirty.ratio` of what can be cleaned, or when
`max.compaction.lag.ms` requires it. The logs that `max.compaction.lag.ms` requires are cleaned first, then the
filthiest. A log that could not be cleaned, because of damage or lack of room, is left alone for a while. Vnodes are
touched on the event loop only.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping

import msgspec
import trio

from barnabas.storage.compaction import StoppedError
from barnabas.storage.compaction_terms import CompactionFigures, CompactionLimits, Need
from barnabas.storage.errors import CorruptLogError, StorageError
from barnabas.storage.flusher import HOLD_SECONDS
from barnabas.storage.pace import Pace
from barnabas.storage.report import Tell
from barnabas.storage.vnode import CompactionJob, Vnode

#: A log that could not be cleaned is tried again after this time.
NEXT_TRY_SECONDS = 60.0
_LEAST_BACKOFF = 0.05
_NICE = 15

Key = tuple[str, int]


class CleanerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Kafka's defaults. `limits` apply to each thread."""

    enabled: bool = True
    threads: int = 1
    backoff_seconds: float = 15.0
    limits: CompactionLimits = msgspec.field(default_factory=CompactionLimits)


class Cleaner:
    """Compacts the logs of `vnodes`, which may change. `settings` is called before each log."""

    def __init__(
        self,
        vnodes: Mapping[Key, Vnode],
        settings: Callable[[], CleanerSettings],
        now_ms: Callable[[], int],
        tell: Tell,
        checkpoint: Callable[[], Awaitable[None]] | None = None,
        pace: Pace | None = None,
    ) -> None:
        """`checkpoint` is called after a log is cleaned, to record that on disk. It may raise StorageError.

        The cleaner sets in `pace` whether it is behind.
        """
        self._vnodes, self._settings, self._now_ms, self._tell = vnodes, settings, now_ms, tell
        self._checkpoint, self._pace = checkpoint, pace
        self._limiter = trio.CapacityLimiter(1)
        self._busy: set[Key] = set()
        self._next_try: dict[Key, float] = {}
        self._told: set[Key] = set()  # logs whose failure to be cleaned was reported
        self._ended = trio.Event()
        #: The compactions under way.
        self.jobs: dict[Key, CompactionJob] = {}

    async def run(self) -> None:
        """Clean the logs that are due, until cancelled."""
        one_ended = False
        async with trio.open_nursery() as nursery:
            while True:
                settings = self._settings()
                if settings.enabled and len(self._busy) < settings.threads:
                    vnode = await self.filthiest()
                    if self._pace is not None:
                        self._pace.behind = vnode is not None and (one_ended or self._pace.behind)
                    if vnode is not None:
                        self._busy.add((vnode.topic, vnode.partition))
                        nursery.start_soon(self._clean_due, vnode, settings)
                        continue
                with trio.move_on_after(max(settings.backoff_seconds, _LEAST_BACKOFF)):
                    await self._ended.wait()
                one_ended = self._ended.is_set()
                self._ended = trio.Event()

    async def _clean_due(self, vnode: Vnode, settings: CleanerSettings) -> None:
        try:
            await self.clean(vnode, settings)
        finally:
            self._busy.discard((vnode.topic, vnode.partition))
            self._ended.set()

    async def filthiest(self) -> Vnode | None:
        """The log that is due first; None if none is."""
        found: tuple[tuple[bool, float], Vnode] | None = None
        now, now_ms = trio.current_time(), self._now_ms()
        self._next_try = {key: at for key, at in self._next_try.items() if at > now}
        until = time.perf_counter() + HOLD_SECONDS
        for key in list(self._vnodes):
            if time.perf_counter() > until:
                await trio.lowlevel.checkpoint()
                until = time.perf_counter() + HOLD_SECONDS
            vnode = self._vnodes.get(key)
            if (
                vnode is None
                or not vnode.config.compacts
                or key in self._busy
                or key in self._next_try
                or vnode.error is not None
            ):
                continue
            if not vnode.loaded and not await trio.to_thread.run_sync(vnode.may_need_compaction, limiter=self._limiter):
                continue
            if self._vnodes.get(key) is not vnode:
                continue
            try:
                need = vnode.compaction_need(now_ms)
            except StorageError as error:
                self._failed(vnode, error)
                continue
            rank = need.must, need.dirty_ratio
            if _is_due(need, vnode.config.min_cleanable_dirty_ratio) and (found is None or rank > found[0]):
                found = rank, vnode
        return found[1] if found is not None else None

    async def clean(self, vnode: Vnode, settings: CleanerSettings) -> CompactionFigures | None:
        """Make one pass over a log. Gives its figures, None if nothing was cleaned."""
        try:
            job = vnode.begin_compaction(self._now_ms(), settings.limits)
            if job is not None:
                self.jobs[vnode.topic, vnode.partition] = job
                while await self._run(vnode, job):
                    pass
        except StorageError as error:
            self._failed(vnode, error)
            return None
        finally:
            self.jobs.pop((vnode.topic, vnode.partition), None)
        if job is None or not job.is_done:
            self._failed(vnode, None)
            return None
        self._told.discard((vnode.topic, vnode.partition))
        self._tell_figures(vnode, job.figures)
        if self._checkpoint is not None:
            with contextlib.suppress(StorageError):  # the periodic checkpoint tries again, and reports errors
                await self._checkpoint()
        return job.figures

    def _tell_figures(self, vnode: Vnode, figures: CompactionFigures) -> None:
        self._tell(
            "log.cleaned",
            topic=vnode.topic,
            partition=vnode.partition,
            from_offset=figures.from_offset,
            to_offset=figures.to_offset,
            bytes_before=figures.bytes_before,
            bytes_after=figures.bytes_after,
            records_before=figures.records_before,
            records_after=figures.records_after,
            segments_before=figures.segments_before,
            segments_after=figures.segments_after,
            keys=figures.keys,
            seconds=round(figures.seconds, 3),
            **({"map": "full"} if figures.is_partial else {}),
            **({"unreadable_batches": figures.unreadable} if figures.unreadable else {}),
        )

    async def _run(self, vnode: Vnode, job: CompactionJob) -> bool:
        """Run one part of a job; whether there is more. If this is cancelled, the thread ends soon.

        Raises StorageError.
        """
        error: Exception | None = StoppedError()
        try:
            error = await _in_thread(job)
        finally:
            more = vnode.end_compaction(job, error)
        return more

    def _failed(self, vnode: Vnode, error: StorageError | None) -> None:
        """Leave the log alone for a while. This is reported once, until the log is cleaned."""
        key = vnode.topic, vnode.partition
        self._next_try[key] = trio.current_time() + NEXT_TRY_SECONDS
        if error is not None and key not in self._told:
            self._told.add(key)
            self._tell("log.not.cleaned", topic=vnode.topic, partition=vnode.partition, reason=error)


def _is_due(need: Need, ratio: float) -> bool:
    return bool(need.dirty_bytes) and (need.must or need.dirty_ratio > ratio)


async def _in_thread(job: CompactionJob) -> Exception | None:
    """Run one part of a job in a thread. Gives the error to pass to `end_compaction`.

    The thread yields the processor to the event loop and to clients. It is a thread of its own and ends with the part,
    because a thread that has lowered its priority may not raise it again.
    """
    token, done = trio.lowlevel.current_trio_token(), trio.Event()
    found: list[Exception | None] = []
    unexpected: list[BaseException] = []

    def work() -> None:
        try:
            _lower_priority()
            found.append(_run(job))
        except BaseException as error:
            unexpected.append(error)
        finally:
            token.run_sync_soon(done.set)

    threading.Thread(target=work, name="log cleaner").start()
    try:
        await done.wait()
    except trio.Cancelled:
        job.stop()
        with trio.CancelScope(shield=True):
            await done.wait()
        raise
    if unexpected:
        raise unexpected[0]
    return found[0]


def _lower_priority() -> None:
    """Lower the priority of the calling thread. Only on Linux: elsewhere this would change the whole process."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def _run(job: CompactionJob) -> Exception | None:
    """Run the part. Gives the error to pass to `end_compaction`."""
    try:
        job.run()
    except (OSError, CorruptLogError, StoppedError) as error:
        return error
    return None
