"""One poll of the operating system for all connections.

A task for each connection costs a switch, and an epoll_ctl to arm its socket anew, for every request. Here the sockets
stay registered with an epoll of their own. Trio wakes when that has something to tell, and before it runs its tasks the
poller calls who has something to read. What is called must not wait. The calls of one pass are one turn: their answers
leave together at its end, as a client that is woken for each answer alone costs more than the rest of the request.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import trio

# The tasks of the event loop have their turn after so many seconds of calls.
HOLD_SECONDS = 0.002
MOST_EVENTS = 256


class Poller(trio.abc.Instrument):
    """Calls by readable socket. `run` is a task of the owner's nursery."""

    def __init__(self, around: AbstractContextManager[object]) -> None:
        """`around` is entered while sockets are served."""
        self._around = around
        self._epoll = select.epoll()
        self._calls: dict[int, Callable[[], None]] = {}
        self._left: list[Callable[[], None]] = []  # readable, and not called yet
        self._again: dict[Callable[[], None], None] = {}
        self._wake = trio.Event()
        self._broken = trio.Event()
        self._error: Exception | None = None

    def add(self, sock: socket.socket, call: Callable[[], None]) -> None:
        """Call whenever `sock` is readable, or its connection is gone, until `remove`. The call must not raise,
        and may come once more after `remove`."""
        fd = sock.fileno()
        self._epoll.register(fd, select.EPOLLIN)
        self._calls[fd] = call

    def remove(self, sock: socket.socket) -> None:
        """Call no more. Before the socket is closed."""
        fd = sock.fileno()
        self._epoll.unregister(fd)
        del self._calls[fd]

    def again(self, call: Callable[[], None]) -> None:
        """Call once in the next pass, whatever the socket says."""
        self._again[call] = None
        self._wake.set()

    def forget(self, call: Callable[[], None]) -> None:
        """Take an `again` back."""
        self._again.pop(call, None)

    async def run(self) -> None:
        """Serve until cancelled, or until a call raises."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve_again)
            if not wake_trio(self._epoll):
                nursery.start_soon(self._wake_trio)
            trio.lowlevel.add_instrument(self)
            try:
                await self._broken.wait()
                assert self._error is not None
                raise self._error
            finally:
                trio.lowlevel.remove_instrument(self)

    def after_io_wait(self, timeout: float) -> None:
        """Trio calls this in each pass, before the tasks."""
        calls = self._left
        if not calls:
            for fd, _ in self._epoll.poll(0, MOST_EVENTS):
                calls.append(self._calls[fd])
            if not calls:
                return
        try:
            self._serve(calls)
        except Exception as error:  # trio would go on without us
            self._error = error
            self._broken.set()

    def _serve(self, calls: list[Callable[[], None]]) -> None:
        """Call until the event loop has been held up for long enough; `calls` keeps what is left."""
        until = time.perf_counter() + HOLD_SECONDS
        with self._around:
            while calls:
                calls.pop()()  # no name of ours keeps what has ended
                if time.perf_counter() > until:
                    return

    async def _serve_again(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            calls, self._again = list(self._again), {}
            with self._around:
                while calls:
                    calls.pop()()
            await trio.lowlevel.checkpoint()

    async def _wake_trio(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())

    def close(self) -> None:
        self._epoll.close()


def wake_trio(epoll: select.epoll) -> bool:
    """Have trio wake whenever `epoll` has something to tell. False where this trio cannot: then a task has to wait for
    it, at the price of a switch and an epoll_ctl in each pass.

    Trio's own epoll reports ours, and trio ignores a descriptor that no task waits for. There is no public way to say
    so; whether it is ignored is tried here.
    """
    try:
        from trio._core._run import GLOBAL_RUN_CONTEXT

        manager = GLOBAL_RUN_CONTEXT.runner.io_manager
        manager.process_events([(epoll.fileno(), select.EPOLLIN)])
        manager._epoll.register(epoll.fileno(), select.EPOLLIN)
    except (ImportError, AttributeError, LookupError, TypeError):
        return False
    return True
