"""Group fsync: one fdatasync acknowledges everything that was appended to a vnode before the sync began.

appended -> asked -> (gather while others still append) -> fdatasync -> waiting callers

On a quick disk a small fdatasync takes less time than handing it to a thread and back (see
docs/decisions/0005-fsync-on-the-event-loop.md). So the fdatasync of one vnode runs on the event loop, provided that the
disk has lately been quick, little is to be written, and no other flush runs. Several go to the kernel's workers
together, as they then take hardly longer than one (docs/decisions/0008-fsyncs-by-the-kernel.md). A flush of more than
one file goes to a thread. If the kernel cannot do it, each flush runs on the event loop or in a thread. While a vnode's
flush runs elsewhere, new appends gather for the next flush.

A vnode that is flushed again and again has zeros behind its log, which the next appends overwrite. When the appends
cease, its file is cut to end where the log does.
"""

from __future__ import annotations

import contextlib
import heapq
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import trio

from barnabas.storage.errors import StorageError
from barnabas.storage.faults import NotBegunError
from barnabas.storage.io import Io
from barnabas.storage.kernel_sync import KernelSync
from barnabas.storage.vnode import FlushJob, Vnode

_LOG_FLUSH_MS_MAX = 2**40
# An fsync that is expected to take longer than this goes to a thread. Several fsyncs together hold the event loop up
# for about this long at most, and requests are gathered for no longer.
SPOT_SECONDS = 0.001
HOLD_SECONDS = 0.002
SPOT_BYTES = 256 << 10
# The weight of the newest fsync in the expected duration of one, and the expected duration at the start.
_NEWEST = 0.2
_EXPECTED_SECONDS = 0.0002
# An fsync that could not begin, for lack of descriptors, is tried again after this time.
AGAIN_SECONDS = 0.1
# A vnode that was not flushed for this long (at most twice as long) counts as idle.
ALONE_SECONDS = 1.0


class _Pending:
    """A vnode in the flusher: its waiters by offset, and whether another flush must follow the running one."""

    __slots__ = ("again", "running", "waiters")

    def __init__(self) -> None:
        self.waiters: deque[tuple[int, Callable[[], None]]] = deque()
        self.running = False
        self.again = False


class Flusher:
    """Flushes vnodes for those who wait. `run` is a task of the owner's nursery; before it, requests only gather."""

    def __init__(
        self,
        io: Io | None = None,
        *,
        threads: int = 4,
        around: AbstractContextManager[object] | None = None,
        spot_seconds: float = SPOT_SECONDS,
    ) -> None:
        """`around` is entered while waiters are called. With `spot_seconds` 0, threads do every fsync."""
        self._io = io or Io()
        self._thread_count = threads
        self._around = around or nullcontext()
        self._spot_seconds = spot_seconds if self._io.syncs_on_the_spot else 0.0
        self._expected = _EXPECTED_SECONDS
        self._queue: queue.SimpleQueue[tuple[Vnode, FlushJob] | None] = queue.SimpleQueue()
        self._token: trio.lowlevel.TrioToken | None = None
        self._pending: dict[Vnode, _Pending] = {}
        self._asked: dict[Vnode, _Pending] = {}
        self._requests = 0
        self._wake = trio.Event()
        self._due: list[tuple[float, int, Vnode]] = []
        self._due_vnodes: set[Vnode] = set()
        self._due_changed = trio.Event()
        self._busy: dict[Vnode, bool] = {}  # flushed lately -> also since the last check?
        self._some_busy = trio.Event()
        self._idle = trio.Event()
        self._jobs = 0
        self._kernel: KernelSync[tuple[Vnode, FlushJob, float, bool]] | None = None
        self._ended = False
        self.flushes = 0
        #: Called with the seconds that each flush took.
        self.observe: Callable[[float], None] | None = None

    def when_flushed(self, vnode: Vnode, offset: int, call: Callable[[], None]) -> None:
        """Call `call` once, when everything below `offset` can be acknowledged or the vnode has gone offline.

        `call` must not raise. If the vnode went offline, its `error` is set.
        """
        if vnode.error is not None:  # it no longer has offsets
            call()
            return
        if offset > vnode.log_end_offset:
            raise ValueError(f"offset {offset} is beyond the log end {vnode.log_end_offset}")
        if vnode.high_watermark >= offset:
            call()
            return
        pending = self._pending_of(vnode)
        pending.waiters.append((offset, call))
        self._ask(vnode, pending)

    async def flushed(self, vnode: Vnode, offset: int) -> None:
        """Return once everything below `offset` can be acknowledged: synced, or written under the page-cache policy.

        Raises `StorageError` if the vnode goes offline before that.
        """
        if not vnode.waits_for_fsync:
            self.request(vnode)
            return
        while vnode.high_watermark < offset:
            event = trio.Event()
            self.when_flushed(vnode, offset, event.set)
            await event.wait()

    def request(self, vnode: Vnode) -> None:
        """Note an append: flush when the vnode's policy says so, without waiting for it."""
        if vnode.waits_for_fsync:
            self._ask(vnode, self._pending_of(vnode))
            return
        config = vnode.config
        if config.flush_messages is not None and vnode.unflushed_messages >= config.flush_messages:
            self._ask(vnode, self._pending_of(vnode))
        elif config.flush_ms is not None and config.flush_ms < _LOG_FLUSH_MS_MAX and vnode not in self._due_vnodes:
            self._ask_later(vnode, config.flush_ms / 1000)

    def _ask_later(self, vnode: Vnode, seconds: float) -> None:
        if vnode not in self._due_vnodes:
            self._due_vnodes.add(vnode)
            heapq.heappush(self._due, (trio.current_time() + seconds, id(vnode), vnode))
            self._due_changed.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; then wait for the running flushes.

        A caller that still waits after that, because its change must not be left half done, is served on the spot.
        """
        self._token = trio.lowlevel.current_trio_token()
        threads = [
            threading.Thread(target=self._work, name=f"flush-{number}", daemon=True)
            for number in range(self._thread_count)
        ]
        for thread in threads:
            thread.start()
        self._kernel = self._io.kernel_sync()
        task_status.started()
        fault: Exception | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._serve_due)
                nursery.start_soon(self._watch_busy)
                if self._kernel is not None:
                    nursery.start_soon(self._serve_done, self._kernel)
                await self._serve_asked()
        except Exception as error:  # our own fault: it is no longer known which flushes run and how they end
            fault = error
            raise
        finally:
            if fault is None:
                with trio.CancelScope(shield=True):
                    await self._wait_for_running()
            if self._kernel is not None:
                self._kernel.close()
                self._kernel = None
            self._token = None
            self._ended = True
            for _ in threads:
                self._queue.put(None)
            for vnode, pending in list(self._pending.items()):
                if fault is None:
                    self._flush_now(vnode, pending)
                else:
                    with contextlib.suppress(Exception):
                        vnode.fail("flush", fault)
                        self._release(vnode, pending)

    async def _wait_for_running(self) -> None:
        while self._kernel is not None and len(self._kernel):
            await self._serve_some_done(self._kernel)
        while self._jobs:
            self._idle = trio.Event()
            await self._idle.wait()

    async def _serve_asked(self) -> None:
        crowd = False
        while True:
            if not self._asked:
                self._wake = trio.Event()
                await self._wake.wait()
            if crowd:
                await self._gather()
            crowd = len(self._asked) > 1 or any(len(pending.waiters) > 1 for pending in self._asked.values())
            left = len(self._asked)  # requests from now on have their turn after the next gathering
            while left:
                left -= self._start_some(left)
                if self._asked:
                    await trio.lowlevel.checkpoint()

    def _start_some(self, most: int) -> int:
        """Flush vnodes until the event loop has been held up for long enough; gives how many."""
        began = time.perf_counter()
        count = 0
        with self._around:
            while count < most and time.perf_counter() - began < HOLD_SECONDS:
                vnode = next(iter(self._asked))
                self._start(vnode, self._asked.pop(vnode), alone=most == 1)
                count += 1
            if self._kernel is not None:
                self._kernel.submit()
        return count

    async def _serve_done(self, kernel: KernelSync[tuple[Vnode, FlushJob, float, bool]]) -> None:
        while True:
            await self._serve_some_done(kernel)

    async def _serve_some_done(self, kernel: KernelSync[tuple[Vnode, FlushJob, float, bool]]) -> None:
        """Wait for the kernel's syncs, and serve their waiters."""
        await trio.lowlevel.wait_readable(kernel.fileno())
        with self._around:
            for (vnode, job, began, alone), error in kernel.completed():
                self._done(vnode, job, error, time.perf_counter() - began, alone=alone)

    async def _gather(self) -> None:
        """Let others append as long as each pass of the event loop brings more, but not for long."""
        until = trio.current_time() + HOLD_SECONDS
        seen = -1
        while seen != self._requests and trio.current_time() < until:
            seen = self._requests
            await trio.lowlevel.checkpoint()

    async def _serve_due(self) -> None:
        while True:
            self._due_changed = trio.Event()
            with trio.move_on_at(self._due[0][0] if self._due else float("inf")):
                await self._due_changed.wait()
            while self._due and self._due[0][0] <= trio.current_time():
                vnode = heapq.heappop(self._due)[2]
                self._due_vnodes.discard(vnode)
                self._ask(vnode, self._pending_of(vnode))

    async def _watch_busy(self) -> None:
        while True:
            if not self._busy:
                self._some_busy = trio.Event()
                await self._some_busy.wait()
            await trio.sleep(ALONE_SECONDS)
            for vnode in list(self._busy):
                if self._busy[vnode]:
                    self._busy[vnode] = False
                else:
                    del self._busy[vnode]
                    vnode.unreserve()
                    await trio.lowlevel.checkpoint()

    def _note_busy(self, vnode: Vnode, job: FlushJob) -> None:
        """Note that a vnode is about to be flushed. If it was flushed lately, more appends like these may come."""
        if vnode in self._busy:
            vnode.reserve(job)
        elif not self._busy:
            self._some_busy.set()
        self._busy[vnode] = True

    def _pending_of(self, vnode: Vnode) -> _Pending:
        pending = self._pending.get(vnode)
        if pending is None:
            pending = self._pending[vnode] = _Pending()
        return pending

    def _ask(self, vnode: Vnode, pending: _Pending) -> None:
        """Queue the vnode for a flush soon."""
        self._requests += 1
        if self._ended:
            self._flush_now(vnode, pending)
        elif pending.running:
            pending.again = True
        else:
            self._asked[vnode] = pending
            self._wake.set()

    def _start(self, vnode: Vnode, pending: _Pending, *, alone: bool) -> None:
        """Flush a vnode: here if that is quick and no other flush runs, otherwise by the kernel or in a thread."""
        try:
            job = vnode.begin_flush()
        except StorageError:
            job = None
        if job is None:
            # Nothing is owed: waiters check the high watermark again, or get the vnode's error.
            self._release(vnode, pending)
            return
        pending.running = True
        quick = job.syncs * self._expected <= self._spot_seconds and job.size <= SPOT_BYTES
        alone = alone and not self._jobs
        lone_fd = None if self._kernel is None else job.lone_fd
        on_the_spot = quick and not self._jobs and (alone or lone_fd is None)
        self._jobs += 1
        if on_the_spot:
            self._note_busy(vnode, job)
            self._done(vnode, job, *self._run_job(job))
        elif self._kernel is not None and lone_fd is not None:
            self._note_busy(vnode, job)
            # One among several says nothing about how long a lone one takes.
            self._kernel.add(lone_fd, (vnode, job, time.perf_counter(), alone))
        else:
            self._queue.put((vnode, job))

    def _flush_now(self, vnode: Vnode, pending: _Pending) -> None:
        with contextlib.suppress(StorageError):
            vnode.flush()
        self._release(vnode, pending)

    def _release(self, vnode: Vnode, pending: _Pending) -> None:
        self._pending.pop(vnode, None)
        for _, call in pending.waiters:
            call()

    def _run_job(self, job: FlushJob) -> tuple[OSError | None, float]:
        """Run a job; gives its error, and the seconds that it took."""
        began = time.perf_counter()
        error: OSError | None = None
        try:
            job.run()
        except OSError as caught:
            error = caught
        return error, time.perf_counter() - began

    def _work(self) -> None:
        token = self._token
        assert token is not None
        while (item := self._queue.get()) is not None:
            vnode, job = item
            try:
                token.run_sync_soon(self._done_in_thread, vnode, job, *self._run_job(job))
            except trio.RunFinishedError:
                return

    def _done_in_thread(self, vnode: Vnode, job: FlushJob, error: OSError | None, seconds: float) -> None:
        if self._ended:
            return
        with self._around:
            self._done(vnode, job, error, seconds)

    def _done(self, vnode: Vnode, job: FlushJob, error: OSError | None, seconds: float, *, alone: bool = True) -> None:
        self._jobs -= 1
        self.flushes += 1
        if self.observe is not None:
            self.observe(seconds)
        if alone and job.size <= SPOT_BYTES:
            self._expected += (seconds / job.syncs - self._expected) * _NEWEST
        pending = self._pending[vnode]
        vnode.end_flush(job, error)  # calls waiters: an append there only asks for another flush
        pending.running = False
        if isinstance(error, NotBegunError) and vnode.error is None and not self._ended:
            self._ask_later(vnode, AGAIN_SECONDS)  # the waiters keep waiting
            self._note_idle()
            return
        waiters = pending.waiters
        if error is None and vnode.error is None:
            pending.waiters = deque(waiter for waiter in waiters if waiter[0] > job.end_offset)
            served = [call for offset, call in waiters if offset <= job.end_offset]
        else:
            pending.waiters = deque()
            served = [call for _, call in waiters]
        for call in served:
            call()
        if pending.again or pending.waiters:
            pending.again = False
            self._ask(vnode, pending)
        else:
            del self._pending[vnode]
        self._note_idle()

    def _note_idle(self) -> None:
        if not self._jobs:
            self._idle.set()
