"""The metrics of a broker as text, in Prometheus' or OpenMetrics' format, as the reader asks.

A thread makes the text. Readers that ask at the same time get the same text: a thousand cost as much as one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from barnabas.broker.metrics.collector import Collected, Collector
from barnabas.broker.metrics.loop import Holds
from barnabas.broker.metrics.measures import Histogram
from barnabas.broker.metrics.requests import RequestCounts
from barnabas.broker.metrics.subscriptions import Subscriptions
from barnabas.broker.metrics.watch import Watch
from barnabas.broker.net.connections import Connections
from barnabas.broker.parts import Parts
from barnabas.storage.flusher import Flusher


class Metrics:
    """The metrics of one broker. `requests.endpoint` makes its endpoints; call `start` when its parts exist."""

    def __init__(self) -> None:
        self.requests = RequestCounts()
        self.holds = Holds()
        self.fsyncs = Histogram()
        self.watch: Watch
        self._collector: Collector
        self._shared = Shared()

    def start(self, parts: Parts, flusher: Flusher, connections: Connections, nursery: trio.Nursery) -> None:
        """Start the task that takes regular notes, now that the broker's parts exist."""
        flusher.observe = self.fsyncs.observe
        connections.poller.held = self.holds.held
        parts.make(Subscriptions)
        self.watch = parts.make(Watch, counts=self.requests)
        self._collector = parts.make(
            Collector, counts=self.requests, holds=self.holds, fsyncs=self.fsyncs, watch=self.watch
        )
        nursery.start_soon(self.watch.run)

    async def families(self) -> list[Metric]:
        """The metrics before they are text. Raises OSError."""
        return await self._collector.collect()

    async def render(self, accept: str) -> tuple[bytes, str]:
        """The text and its content type, for a reader that sends this Accept header. Raises OSError."""
        encode, content_type = choose_encoder(accept)
        return await self._shared.made(content_type, lambda: self._text(partial(encode))), content_type

    async def _text(self, encode: Callable[[Collected], bytes]) -> bytes:
        collected = Collected(await self._collector.collect())
        return await trio.to_thread.run_sync(encode, collected)


class Shared:
    """Texts that are being made. Each is made once, for all readers that ask meanwhile."""

    def __init__(self) -> None:
        self._making: dict[str, _Making] = {}

    async def made(self, kind: str, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The text of a kind. Calls `make`, unless this text is already being made. Raises OSError."""
        making = self._making.get(kind)
        if making is None:
            making = self._making[kind] = _Making()
            try:
                await making.make(make)
            finally:
                del self._making[kind]
        else:
            await making.done.wait()
        return making.result()


class _Making:
    """A text that is being made, with its waiters."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self._text: bytes | None = None
        self._error: OSError | None = None

    async def make(self, make: Callable[[], Awaitable[bytes]]) -> None:
        try:
            self._text = await make()
        except OSError as error:
            self._error = error
        finally:
            self.done.set()

    def result(self) -> bytes:
        """Raises OSError."""
        if self._text is None:
            raise self._error or OSError("the reader who asked first has left: ask again")
        return self._text
