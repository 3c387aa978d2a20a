"""Several nodes of one broker in the test's own process, without a supervisor: this does what it would do."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from barnabas.broker.between.membership import Membership
from barnabas.broker.log import EventLog
from barnabas.broker.node import Node
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.supervisor import take_for_nodes
from barnabas.broker.tests.client import Client
from barnabas.broker.tests.conftest import Running
from barnabas.storage.io import Io
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

OWNER = 1


class Several:
    """Nodes 1 to `count`. The first owns the metadata."""

    def __init__(
        self, path: Path, count: int, nursery: trio.Nursery, settings: dict[str, str], disks: dict[int, Io]
    ) -> None:
        self.path, self.count = path, count
        self._nursery, self._settings, self._disks = nursery, settings, disks
        self.running: dict[int, Running] = {}
        self._scopes: dict[int, trio.CancelScope] = {}
        self._ended: dict[int, trio.Event] = {}
        self.clients: dict[int, Client] = {}

    def __getitem__(self, node: int) -> Running:
        return self.running[node]

    @property
    def owner(self) -> Node:
        return self.running[OWNER].node

    async def start(self, node: int) -> None:
        """Start a node, and wait until its clients can connect."""
        said = io.StringIO()
        properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dir": str(self.path), "node.id": str(node)}
        config = BrokerConfig({**properties, **self._settings})
        membership = Membership(node, OWNER, self.count, self.path)
        made = Node(config, EventLog(said).of(node=node), io=self._disks.get(node), membership=membership)
        self._scopes[node], self._ended[node] = trio.CancelScope(), trio.Event()
        await self._nursery.start(self._run, node, made)
        self.running[node] = Running(made, said)

    async def _run(self, node: int, made: Node, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            with self._scopes[node]:
                await made.run(task_status=task_status)
        finally:
            self._ended[node].set()

    async def cut_off(self, node: int) -> None:
        """End a node so that it can neither tell the other nodes anything nor write that it has stopped."""
        running = self.running.pop(node)
        self.clients.pop(node, None)
        running.node.data_dir.claim.release()  # as the kernel does; later checkpoints do not count
        self._scopes[node].cancel()
        await self._ended[node].wait()

    async def stop(self, node: int) -> None:
        running = self.running.pop(node)
        self.clients.pop(node, None)
        running.node.stop()
        await self._ended[node].wait()

    async def client(self, node: int) -> Client:
        """A connection to a node, the same one each time."""
        if node not in self.clients:
            self.clients[node] = await self.running[node].client()
        return self.clients[node]

    async def leaders(self, topic: str, node: int = OWNER) -> dict[int, int]:
        """The leaders of a topic's partitions, as a node reports them."""
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        (found,) = (await (await self.client(node)).ask(asked)).topics
        return {each.partition_index: each.leader_id for each in found.partitions}

    def no_errors(self) -> None:
        for running in self.running.values():
            assert " error " not in running.log, running.log


@asynccontextmanager
async def several(
    path: Path, *, count: int = 3, disks: dict[int, Io] | None = None, **settings: Any
) -> AsyncIterator[Several]:
    """All nodes serve during this block. Then they stop, and the folder is as a single process leaves it.

    `disks` has the `Io` of nodes that do not write to the disk directly.
    """
    path.mkdir(exist_ok=True)
    claim = take_for_nodes(str(path), OWNER, None)
    named = {key.replace("_", "."): value for key, value in settings.items()}
    try:
        async with trio.open_nursery() as nursery:
            nodes = Several(path, count, nursery, named, disks or {})
            with trio.fail_after(60):
                async with trio.open_nursery() as starting:
                    for node in range(OWNER, OWNER + count):
                        starting.start_soon(partial(nodes.start, node))
            try:
                yield nodes
            finally:
                with trio.CancelScope(shield=True), trio.fail_after(60):
                    for client in nodes.clients.values():
                        await trio.aclose_forcefully(client.stream)
                    for node in sorted(nodes.running, reverse=True):
                        await nodes.stop(node)
    finally:
        claim.fold()
        claim.release()
