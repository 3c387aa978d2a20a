"""A broker of three nodes, and faults of one of them."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path

from compat_tests.broker_process import Barnabas
from compat_tests.waiting import until


class Nodes(Barnabas):
    """`barnabas serve --processes 3`; the first node, which owns the metadata, has the id 1."""

    processes = 3

    @property
    def servers(self) -> str:
        """The bootstrap servers of clients: all nodes."""
        return ",".join(f"127.0.0.1:{self.port + index}" for index in range(self.processes))

    def pids(self) -> dict[int, int]:
        """The process ids of the running nodes, by node id."""
        assert self.process
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return {node: pid for pid in map(int, children.split()) if (node := self._node_of(pid)) is not None}

    def _node_of(self, pid: int) -> int | None:
        """The node id of a process: it has that node's lock file open."""
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                found = re.search(r"/nodes/(\d+)/\.lock$", os.readlink(f"/proc/{pid}/fd/{name}"))
                if found:
                    return int(found[1])
        except OSError:
            pass
        return None

    def send(self, node: int, number: signal.Signals) -> None:
        """Send a signal to one node."""
        os.kill(self.pids()[node], number)

    def kill_node(self, *nodes: int) -> None:
        """SIGKILL for nodes, together; returns when new processes run as these nodes and take connections.

        kafka-python 3.0.12 loses a transaction's request if the coordinator refuses the connection, and waits forever.
        """
        before = self.pids()
        for node in nodes:
            os.kill(before[node], signal.SIGKILL)
        for node in nodes:
            until(lambda: self.pids().get(node) not in (None, before[node]), f"node {node} is there again")  # noqa: B023
            until(lambda: self._takes_connections(node), f"node {node} takes connections")  # noqa: B023

    def _takes_connections(self, node: int) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port + node - 1)).close()
        except ConnectionRefusedError:
            return False
        return True
