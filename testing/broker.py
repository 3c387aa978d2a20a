"""A broker for one test: it can be started, killed and restarted, and can have faults on request.

It is a process, or several that are the nodes of one broker. They end with the test process, however that ends: they
read commands from standard input, and exit when that closes. Their data is removed at the end, unless the test chose
the directory.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.admin import create_topic
from barnabas.client.cluster import Cluster
from barnabas.client.errors import check
from barnabas.client.temporary import TemporaryFolder
from barnabas.testing.process import BrokerError, Process

if TYPE_CHECKING:
    from barnabas.storage.claim import Claim

T = TypeVar("T")
__all__ = ["Broker", "BrokerError"]


class Broker:
    """A broker on a free port of 127.0.0.1. It starts with the `with` block, or with `start()`.

    Server properties are arguments with `_` for each dot, as in `Broker(num_partitions=3)`, or a mapping, as in
    `Broker({"log.segment.bytes": 1 << 20})`. `data_dir` is a directory for data that stays; without it, the data is in
    a temporary folder and removed with the broker.

    `Broker(processes=3)` is one broker of three nodes, as `barnabas serve --processes 3`, but nothing restarts a node:
    the test decides. Where a method takes a `node`, that is its id (1 for the first); without it, the method is for
    all nodes.

    `async with Broker() as broker` does the same under trio and asyncio, without blocking the event loop.
    """

    def __init__(
        self,
        properties: Mapping[str, object] | None = None,
        *,
        processes: int = 1,
        data_dir: str | os.PathLike[str] | None = None,
        **more: object,
    ) -> None:
        if processes < 1:
            raise ValueError(f"processes={processes}: a broker has at least one")
        named = {name.replace("_", "."): value for name, value in more.items()}
        self._properties = {name: _text(value) for name, value in {**(properties or {}), **named}.items()}
        self._temporary = None
        if data_dir is None:
            self._temporary = TemporaryFolder("barnabas-testing-")
            data_dir = self._temporary.path / "data"
        self.data_dir = Path(data_dir)
        self._log: list[str] = []
        self._first = _id_of(self._properties)
        self._processes = {
            node: Process(
                "the broker" if processes == 1 else f"node {node}", partial(self._words, node, processes), self._log
            )
            for node in range(self._first, self._first + processes)
        }
        self._claim: Claim | None = None

    def _words(self, node: int, count: int, address: str) -> Sequence[str]:
        kind = "kept" if self._temporary is None else "temporary"
        settings = self._properties if count == 1 else {**self._properties, "node.id": str(node)}
        places = (kind, str(self.data_dir), address, f"{self._first}+{count}")
        return [*places, *(f"{key}={value}" for key, value in settings.items())]

    # --- for clients --------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of each node, for any client. The ports stay the same after a restart."""
        return ",".join(process.address for process in self._processes.values())

    @property
    def port(self) -> int:
        """The port of the first node; 0 before the first start."""
        return self._processes[self._first].port

    @property
    def nodes(self) -> list[int]:
        """The ids of the nodes. The first is the controller."""
        return list(self._processes)

    def address(self, node: int) -> str:
        """HOST:PORT of one node."""
        return self._of(node)[0].address

    @property
    def log(self) -> str:
        """The broker's log so far, from all of its nodes and starts."""
        return "".join(self._log)

    @property
    def is_running(self) -> bool:
        """Whether all of its processes are running."""
        return all(process.is_running for process in self._processes.values())

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> None:
        """Create a topic. Raises ClientError if that fails."""
        with Cluster(self.bootstrap_servers) as cluster:
            settings = {key: _text(value) for key, value in (config or {}).items()}
            made = create_topic(cluster, name, settings, partitions=partitions)
            check(made.error_code, name, made.error_message)

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self, node: int | None = None) -> None:
        """Start, and return when clients can connect. Raises BrokerError if it ends instead."""
        starting = [process for process in self._of(node) if not process.is_running]
        if not starting:
            return
        if not any(process.is_running for process in self._processes.values()):
            self._take_data_dir()
        try:
            for process in starting:
                process.begin()
            for process in starting:
                process.wait_until_ready()
        except BrokerError:
            for process in starting:
                process.kill()
            raise

    def stop(self, node: int | None = None) -> None:
        """Stop cleanly, the controller last. If a node needs over a minute, it is killed and BrokerError is raised."""
        for process in reversed(self._of(node)):
            process.stop()
        if self._claim is not None and not any(process.is_running for process in self._processes.values()):
            self._claim.fold()
            self._leave_data_dir()

    def kill(self, node: int | None = None) -> None:
        """Crash the broker or one node with SIGKILL. `start` restarts it with the same port and data."""
        for process in self._of(node):
            process.kill()

    def close(self) -> None:
        """End the broker, and remove its data if that is temporary."""
        self.kill()
        self._leave_data_dir()
        if self._temporary is not None:
            self._temporary.remove()

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Broker:
        await _in_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await _in_thread(self.close)

    # --- faults -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def hanging(self, node: int | None = None) -> Iterator[None]:
        """Inside this context, nothing of the broker runs (SIGSTOP): it accepts connections and answers nobody."""
        processes = self._of(node)
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def slow_disk(self, seconds: float, node: int | None = None) -> Iterator[None]:
        """Inside this context, each file sync takes this much longer, as on a busy or worn disk."""
        self._set(node, disk_seconds=seconds)
        try:
            yield
        finally:
            self._set(node, disk_seconds=0)

    @contextlib.contextmanager
    def frozen_disk(self, node: int | None = None) -> Iterator[None]:
        """Inside this context, no file sync completes, so nothing new is acknowledged. Afterwards they complete."""
        self._set(node, disk_seconds=None)
        try:
            yield
        finally:
            self._set(node, disk_seconds=0)

    def lose_answers(self, api: str = "Produce", count: int = 1, node: int | None = None) -> None:
        """Carry out the next requests of an API (`Produce`, `Fetch`, `OffsetCommit`, ...), but close the connection.

        The client gets no answer, and must find out by itself what happened. With several nodes and no `node`, each of
        them loses `count` answers.
        """
        self._set(node, lose=[api, count])

    # --- the processes ------------------------------------------------------------------------------------------------

    def _of(self, node: int | None) -> list[Process]:
        if node is None:
            return list(self._processes.values())
        if node not in self._processes:
            raise ValueError(f"node={node}: the nodes are {', '.join(map(str, self._processes))}")
        return [self._processes[node]]

    def _set(self, node: int | None, **faults: Any) -> None:
        for process in self._of(node):
            process.set_faults(faults)

    def _take_data_dir(self) -> None:
        """Prepare the directory for several nodes, as their supervisor does. Raises BrokerError."""
        if len(self._processes) == 1:
            return
        from barnabas.broker.supervisor import take_for_nodes
        from barnabas.storage.errors import StorageError

        self._leave_data_dir()
        try:
            self._claim = take_for_nodes(str(self.data_dir), self._first, self._properties.get("cluster.id"))
        except StorageError as error:
            raise BrokerError(f"the broker did not start: {error}") from error

    def _leave_data_dir(self) -> None:
        if self._claim is not None:
            self._claim.release()
            self._claim = None


def _id_of(properties: Mapping[str, str]) -> int:
    """The id of the (first) node. Raises ValueError."""
    found = properties.get("node.id", properties.get("broker.id", "1"))
    if not found.isdecimal():
        raise ValueError(f"node.id={found}: expected a whole number, at least 0")
    return int(found)


def _text(value: object) -> str:
    """A property's value as a properties file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call in a thread, under trio or asyncio."""
    import sniffio

    if sniffio.current_async_library() == "trio":
        import trio

        return await trio.to_thread.run_sync(call)
    import asyncio

    return await asyncio.to_thread(call)
