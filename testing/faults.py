"""Faults that a test can request in a broker: a slow or frozen disk, and lost answers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from barnabas.broker.net.errors import Disconnected
from barnabas.broker.parts import Parts
from barnabas.broker.registry import Around, Context, Endpoint, Handlers
from barnabas.storage.io import Io
from barnabas.wire.types import Message, SizedChunk


class FaultyIo(Io):
    """The real calls, on a slow disk. No sync runs on the event loop, so the loop stays free."""

    syncs_on_the_spot = False

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._seconds: float | None = 0.0

    def take(self, seconds: float | None) -> None:
        """From now on, a sync takes `seconds` longer; with None it blocks until the next call of this method."""
        with self._changed:
            self._seconds = seconds
            self._changed.notify_all()

    def fdatasync(self, fd: int) -> None:
        self._wait()
        super().fdatasync(fd)

    def fsync(self, fd: int) -> None:
        self._wait()
        super().fsync(fd)

    def _wait(self) -> None:
        with self._changed:
            seconds = self._seconds
            if seconds != 0.0:
                self._changed.wait_for(lambda: self._seconds != seconds, timeout=seconds)


class Lost:
    """How many answers to lose, for each API."""

    def __init__(self) -> None:
        self._left: Counter[str] = Counter()

    def lose(self, api: str, count: int) -> None:
        """Lose the next answers of an API. Any thread may call this."""
        self._left[api] = count

    def takes(self, api: str) -> bool:
        """Whether to lose this answer."""
        if self._left[api] <= 0:
            return False
        self._left[api] -= 1
        return True


class Losing(Endpoint):
    """An endpoint that loses some of its answers."""

    __slots__ = ("_inner", "_lost")

    def __init__(self, inner: Endpoint, lost: Lost) -> None:
        self.api, self.version, self.flexible = inner.api, inner.version, inner.flexible
        self.decode, self.handle = inner.decode, inner.handle
        self._inner, self._lost = inner, lost

    def encode(self, response: Message, context: Context) -> list[SizedChunk]:
        if self._lost.takes(self.api.name):
            raise Disconnected(f"the answer to {self.api.name} is lost: a test has asked for it")
        return self._inner.encode(response, context)


def losing(
    lost: Lost, parts: Parts, endpoint: Callable[..., Endpoint] = Endpoint, around: Around | None = None
) -> Handlers:
    """The broker's handlers, which lose some of their answers."""
    return Handlers(parts, endpoint=lambda *args, **options: Losing(endpoint(*args, **options), lost), around=around)
