"""One poll of the operating system for all connections.

With a task for each connection, every request would cost a task switch, and an epoll_ctl to re-arm its socket. Here the
sockets stay registered with a separate epoll. Trio wakes when that epoll has events, and before it runs its tasks the
poller calls the connections that have something to read. A call must not wait. The calls of one pass are one turn:
their answers are sent together at its end, because waking a client for each single answer costs more than the rest of
the request.

A connection that has used up its time is called again (`again`). It comes after all that have just become readable, but
at least one such connection is served in each pass. So a client that sends little is served at once, however much
others send.

Where there is no epoll, a task waits for each socket (`broker.net.task_watch`); everything else is the same.

Waking up costs more than a request, too. So if the next request came at once after the last answers, the poller polls
for a while before the process sleeps.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable, Sized
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import trio

from barnabas.broker.net.task_watch import TaskWatch
from barnabas.wire import portable

_log = logging.getLogger(__name__)

# The longest time that calls run before the tasks of the event loop have their turn.
HOLD_SECONDS = 0.002
MOST_EVENTS = 256
# This many waits in a row must have been shorter than the time for which the poller would poll.
SHORT_WAITS = 2


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class Poller(trio.abc.Instrument):
    """Makes the call of each readable socket. `run` is a task of the owner's nursery."""

    def __init__(self, around: AbstractContextManager[object], idle_poll: float = 0.0) -> None:
        """`around` is entered while sockets are served; the poller polls for at most `idle_poll` seconds before a
        sleep."""
        self._around = around
        self._idle_poll = idle_poll
        #: None if the system has no epoll.
        self._epoll = select.epoll() if portable.has(select, "epoll") else None
        self._watch = TaskWatch(lambda: self._wake.set())
        self._anything = select.poll()  # tells whether trio has any reason to wake
        self._tasks: Sized = ()  # trio's tasks that are ready to run
        #: Called with the seconds for which the event loop was held, from one wait to the next.
        self.held: Callable[[float], None] | None = None
        self._woke = time.perf_counter()
        self._waits_from = 0.0
        self._short_waits = 0
        self._calls: dict[int, Callable[[], None]] = {}
        # The calls to make, in this order: connections that have just become readable, then those with more to do.
        # The value is the socket if a task waits for it.
        self._readable: dict[Callable[[], None], int | None] = {}
        self._again: dict[Callable[[], None], int | None] = {}
        self._wake = trio.Event()
        self._broken = trio.Event()
        self._error: Exception | None = None

    def add(self, sock: HasFileno, call: Callable[[], None]) -> None:
        """Call `call` whenever `sock` is readable or its connection is gone, until `remove`. It must not raise, and may
        be called once more after `remove`."""
        fd = sock.fileno()
        if self._epoll is None:
            self._watch.add(fd)
        else:
            self._epoll.register(fd, select.EPOLLIN)
        self._calls[fd] = call

    def remove(self, sock: HasFileno) -> None:
        """End the calls for a socket. Must be called before it is closed."""
        fd = sock.fileno()
        if self._epoll is None:
            self._watch.remove(fd)
        else:
            self._epoll.unregister(fd)
        del self._calls[fd]

    def again(self, call: Callable[[], None]) -> None:
        """Call `call` once more, readable or not, after all that were ready before."""
        self._again.setdefault(call)
        self._wake.set()

    def forget(self, call: Callable[[], None]) -> None:
        """Take an `again` back."""
        self._again.pop(call, None)

    async def run(self) -> None:
        """Serve until cancelled, or until a call raises."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stay_awake)
            inside = None if self._epoll is None else wake_trio(self._epoll)
            if inside is None:
                nursery.start_soon(self._watch.run if self._epoll is None else self._wake_trio)
                self._idle_poll = 0.0
            else:
                self._anything.register(inside.epoll, select.POLLIN)
                self._tasks = inside.tasks
            trio.lowlevel.add_instrument(self)
            try:
                await self._broken.wait()
                assert self._error is not None
                raise self._error
            finally:
                trio.lowlevel.remove_instrument(self)

    def before_io_wait(self, timeout: float) -> None:
        """Trio calls this in each pass, after the tasks, and sleeps next if it has a `timeout`."""
        self._waits_from = time.perf_counter()
        if self.held is not None:
            self.held(self._waits_from - self._woke)
        if timeout > self._idle_poll:
            self._look()

    def after_io_wait(self, timeout: float) -> None:
        """Trio calls this in each pass, before the tasks."""
        if timeout:
            waited = time.perf_counter() - self._waits_from
            self._short_waits = self._short_waits + 1 if waited < self._idle_poll else 0
        if self.held is not None:
            self._woke = time.perf_counter()
        self._find()
        if not self._is_ready:
            return
        until = time.perf_counter() + HOLD_SECONDS
        try:
            self._serve(until)
            while not self._is_ready and not self._tasks and time.perf_counter() < until and self._look():
                self._find()
                if not self._is_ready:
                    break
                self._serve(until)
        except Exception as error:  # trio would go on without us
            self._error = error
            self._broken.set()
        if self._is_ready:
            self._wake.set()

    @property
    def _is_ready(self) -> bool:
        return bool(self._readable or self._again)

    def _find(self) -> None:
        """Add the readable sockets behind those that are ready already."""
        calls, readable, again = self._calls, self._readable, self._again
        if self._epoll is None:
            for fd in self._watch.find():
                call = calls[fd]
                (again if call in again else readable)[call] = fd
            return
        for fd, _ in self._epoll.poll(0, MOST_EVENTS):
            call = calls[fd]
            if call not in again:
                readable.setdefault(call)

    def _look(self) -> bool:
        """Poll instead of sleeping, if that has paid lately. Gives whether there is anything for trio or us."""
        if self._short_waits < SHORT_WAITS:
            return False
        until = time.perf_counter() + self._idle_poll
        while not self._anything.poll(0):
            if time.perf_counter() > until:
                self._short_waits = 0
                return False
        return True

    def _serve(self, until: float) -> None:
        """Make calls until the event loop has been held for long enough; the rest stay ready."""
        with self._around:
            while self._readable:
                self._call_first(self._readable)
                if time.perf_counter() > until:
                    break
            if self._again:
                self._call_first(self._again)
            while self._again and time.perf_counter() < until:
                self._call_first(self._again)

    def _call_first(self, calls: dict[Callable[[], None], int | None]) -> None:
        call = next(iter(calls))
        fd = calls.pop(call)
        call()
        if fd is not None:
            self._watch.again(fd)

    async def _stay_awake(self) -> None:
        """Keep trio from sleeping while a call is ready whose socket may not be readable."""
        while True:
            if not (self._is_ready or self._watch.found):
                self._wake = trio.Event()
                await self._wake.wait()
            await trio.lowlevel.checkpoint()

    async def _wake_trio(self) -> None:
        assert self._epoll is not None
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())

    def close(self) -> None:
        if self._epoll is not None:
            self._epoll.close()


class Inside(NamedTuple):
    """Trio's own epoll, and its tasks that are to run next."""

    epoll: select.epoll
    tasks: Sized


def wake_trio(epoll: select.epoll) -> Inside | None:
    """Make trio wake whenever `epoll` has events. None if this version of trio cannot: then a task has to wait for it,
    which costs a switch and an epoll_ctl in each pass.

    Trio's own epoll reports ours, and trio ignores a descriptor that no task waits for. There is no public API for
    this, so private parts are used (docs/decisions/0020-private-doors.md). All of them are tried here: whatever another
    version of trio raises, the broker serves.
    """
    try:
        from trio._core._run import GLOBAL_RUN_CONTEXT

        runner = GLOBAL_RUN_CONTEXT.runner
        manager = runner.io_manager
        manager.process_events([(epoll.fileno(), select.EPOLLIN)])
        inside = Inside(manager._epoll, runner.runq)
        select.poll().register(inside.epoll, select.POLLIN)
        len(inside.tasks)
        inside.epoll.register(epoll.fileno(), select.EPOLLIN)
    except Exception as error:
        _log.warning("trio %s has other internals: each request costs more CPU (%r)", trio.__version__, error)
        return None
    return inside
