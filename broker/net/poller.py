"""One poll of the operating system for all connections.

A task for each connection costs a switch, and an epoll_ctl to arm its socket anew, for every request. Here the sockets
stay registered with an epoll of their own. Trio wakes when that epoll has events, and before it runs its tasks the
poller calls the connections that have something to read. A call must not wait. The calls of one pass are one turn:
their answers leave together at its end, as a client that is woken for each answer alone costs more than the rest of the
request.

A connection that has used up its time has more to do (`again`). It goes on behind all that have just become readable,
but at least one such connection goes on in each pass. So a client that sends little is served at once, however much
others push.

Where there is no epoll, a task for each socket does wait (`broker.net.task_watch`); all else is as here.

Waking up costs more than a request, too. So where the next request came at once after the last answers, the poller
polls for a while before the process sleeps.
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
# So many waits in a row must have been shorter than the poller would look.
SHORT_WAITS = 2


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class Poller(trio.abc.Instrument):
    """Calls by readable socket. `run` is a task of the owner's nursery."""

    def __init__(self, around: AbstractContextManager[object], idle_poll: float = 0.0) -> None:
        """`around` is entered while sockets are served; at most `idle_poll` seconds are spent on looking before a
        sleep."""
        self._around = around
        self._idle_poll = idle_poll
        #: None where the system has none.
        self._epoll = select.epoll() if portable.has(select, "epoll") else None
        self._watch = TaskWatch(lambda: self._wake.set())
        self._anything = select.poll()  # whether trio has any reason to wake
        self._tasks: Sized = ()  # of trio's, that are to run
        #: Hears for how many seconds nothing but what was ready was served, from one wait to the next.
        self.held: Callable[[float], None] | None = None
        self._woke = time.perf_counter()
        self._waits_from = 0.0
        self._short_waits = 0
        self._calls: dict[int, Callable[[], None]] = {}
        # The calls to make, in this order: connections that have just become readable, then those with more to do.
        # With the socket, where a task waits for it.
        self._readable: dict[Callable[[], None], int | None] = {}
        self._again: dict[Callable[[], None], int | None] = {}
        self._wake = trio.Event()
        self._broken = trio.Event()
        self._error: Exception | None = None

    def add(self, sock: HasFileno, call: Callable[[], None]) -> None:
        """Call whenever `sock` is readable, or its connection is gone, until `remove`. The call must not raise,
        and may come once more after `remove`."""
        fd = sock.fileno()
        if self._epoll is None:
            self._watch.add(fd)
        else:
            self._epoll.register(fd, select.EPOLLIN)
        self._calls[fd] = call

    def remove(self, sock: HasFileno) -> None:
        """Call no more. Before the socket is closed."""
        fd = sock.fileno()
        if self._epoll is None:
            self._watch.remove(fd)
        else:
            self._epoll.unregister(fd)
        del self._calls[fd]

    def again(self, call: Callable[[], None]) -> None:
        """Call once more, whatever the socket says, behind all who were ready before."""
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
        """Put down who has something to read, behind those who are ready already."""
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
        """Look instead of sleeping, where that has paid lately. Whether there is anything for trio or us."""
        if self._short_waits < SHORT_WAITS:
            return False
        until = time.perf_counter() + self._idle_poll
        while not self._anything.poll(0):
            if time.perf_counter() > until:
                self._short_waits = 0
                return False
        return True

    def _serve(self, until: float) -> None:
        """Call until the event loop has been held up for long enough; the rest stays ready."""
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
        """Have trio pass by without a sleep while somebody is ready whose socket may have nothing to tell."""
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
    """What trio itself waits for, and its tasks that are to run next."""

    epoll: select.epoll
    tasks: Sized


def wake_trio(epoll: select.epoll) -> Inside | None:
    """Have trio wake whenever `epoll` has something to tell. None where this trio cannot: then a task has to wait for
    it, at the price of a switch and an epoll_ctl in each pass.

    Trio's own epoll reports ours, and trio ignores a descriptor that no task waits for. There is no public way to say
    so, which makes this a private door (docs/decisions/0020-private-doors.md): all that is used of it is tried here,
    and whatever another trio raises, the broker serves.
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
        _log.warning("trio %s has other insides: each request costs more CPU (%r)", trio.__version__, error)
        return None
    return inside
