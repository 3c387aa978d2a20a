"""Which sockets are readable, on systems without epoll: a task for each socket waits in trio's way there (kqueue).

A socket that was found is watched again only after it was served (`again`), so that the same bytes are not found twice.
"""

from __future__ import annotations

from collections.abc import Callable

import trio


class TaskWatch:
    """`run` is a task of the owner's nursery; `wake` is called when a socket is readable."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._nursery: trio.Nursery | None = None
        self._scopes: dict[int, trio.CancelScope] = {}
        self._served: dict[int, trio.Event] = {}
        self.found: list[int] = []

    def add(self, fd: int) -> None:
        """Watch a socket from now on."""
        scope = self._scopes[fd] = trio.CancelScope()
        if self._nursery is not None:
            self._nursery.start_soon(self._watch, fd, scope)

    def remove(self, fd: int) -> None:
        """Stop watching a socket. It may be closed next."""
        self._scopes.pop(fd).cancel()
        self._served.pop(fd, None)
        if fd in self.found:
            self.found.remove(fd)

    def find(self) -> list[int]:
        """The sockets that have become readable since the last call."""
        found, self.found = self.found, []
        return found

    def again(self, fd: int) -> None:
        """Watch a socket again after it was served; it may have been removed."""
        if fd in self._served:
            self._served.pop(fd).set()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with trio.open_nursery() as self._nursery:
            for fd, scope in self._scopes.items():
                self._nursery.start_soon(self._watch, fd, scope)
            await trio.sleep_forever()

    async def _watch(self, fd: int, scope: trio.CancelScope) -> None:
        with scope:
            while not scope.cancel_called:  # else the socket may be closed already
                await trio.lowlevel.wait_readable(fd)
                if scope.cancel_called:  # it was removed just before this task ran
                    return
                served = self._served[fd] = trio.Event()
                self.found.append(fd)
                self._wake()
                await served.wait()
