"""One poll of the operating system for all connections.

A task for each connection costs a switch, and an epoll_ctl to arm its socket anew, for every request. Here the sockets
stay registered with a selector of their own; one task waits for that selector in trio and calls who has something to
read. What is called must not wait. The calls of one pass are one turn: their answers leave together at its end, as a
client that is woken for each answer alone costs more than the rest of the request.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import trio

# The other tasks of the event loop have their turn after so many seconds of calls.
HOLD_SECONDS = 0.002


class Poller:
    """Calls by readable socket. `run` is a task of the owner's nursery."""

    def __init__(self, around: AbstractContextManager[object]) -> None:
        """`around` is entered while sockets are served."""
        self._around = around
        self._selector = selectors.DefaultSelector()
        self._again: dict[Callable[[], None], None] = {}
        self._wake = trio.Event()

    def add(self, sock: socket.socket, call: Callable[[], None]) -> None:
        """Call whenever `sock` is readable, or its connection is gone, until `remove`. The call must not raise,
        and may come once more after `remove`."""
        self._selector.register(sock, selectors.EVENT_READ, call)

    def remove(self, sock: socket.socket) -> None:
        """Call no more. Before the socket is closed."""
        self._selector.unregister(sock)

    def again(self, call: Callable[[], None]) -> None:
        """Call once in the next pass, whatever the socket says."""
        self._again[call] = None
        self._wake.set()

    def forget(self, call: Callable[[], None]) -> None:
        """Take an `again` back."""
        self._again.pop(call, None)

    async def run(self) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve_again)
            while True:
                await trio.lowlevel.wait_readable(self._selector.fileno())
                calls = [key.data for key, _ in self._selector.select(0)]
                while True:
                    self._serve(calls)
                    if not calls:
                        break
                    await trio.lowlevel.checkpoint()

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

    def close(self) -> None:
        self._selector.close()
