"""A broker in the test's own process, on a free port."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio
from pytest_trio.enable_trio_mode import *  # type: ignore[import-untyped]  # noqa: F403

from barnabas.broker.clock import Clock
from barnabas.broker.log import EventLog
from barnabas.broker.node import Node
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.tests.client import Client, connect
from barnabas.storage.io import Io

Start = Callable[..., AbstractAsyncContextManager["Running"]]


async def until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds. It is checked again and again, because there is no event for its change."""
    with trio.fail_after(60):
        while not condition():
            await trio.sleep(0.001)


class Running:
    """A serving node, and clients of it."""

    def __init__(self, node: Node, said: io.StringIO) -> None:
        self.node, self._said = node, said

    @property
    def port(self) -> int:
        return self.node.bound[0].port

    @property
    def log(self) -> str:
        return self._said.getvalue()

    def port_of(self, listener: str) -> int:
        return next(each.port for each in self.node.bound if each.name == listener)

    async def client(self, source: str | None = None) -> Client:
        return await connect(self.port, source=source)


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Run a node during a `with` block. The data directory belongs to the test and is the same each time."""

    @asynccontextmanager
    async def run(
        *,
        io_calls: Io | None = None,
        more: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        **settings: str,
    ) -> AsyncIterator[Running]:
        """`more` has the settings whose names contain underscores."""
        said = io.StringIO()
        properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dir": str(tmp_path / "data")}
        properties.update((key.replace("_", "."), value) for key, value in settings.items())
        properties.update(more or {})
        node = Node(BrokerConfig(properties), EventLog(said), io=io_calls, clock=clock)
        async with trio.open_nursery() as nursery:
            with trio.fail_after(60):
                await nursery.start(node.run)
            try:
                yield Running(node, said)
            finally:
                with trio.CancelScope(shield=True), trio.fail_after(60):
                    node.stop()
                    await node.stopped.wait()

    return run
