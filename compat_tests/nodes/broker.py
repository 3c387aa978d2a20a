"""A broker of three nodes, and what can be done to one of them."""

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
        """All nodes, for clients."""
        return ",".join(f"127.0.0.1:{self.port + index}" for index in range(self.processes))

    def pids(self) -> dict[int, int]:
        """The processes of the nodes that run, by the ports on which they listen."""
        assert self.process
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return {node: pid for pid in map(int, children.split()) if (node := self._node_of(pid)) is not None}

    def _node_of(self, pid: int) -> int | None:
        """Which node a process is: the one whose lock it has open."""
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                found = re.search(r"/nodes/(\d+)/\.lock$", os.readlink(f"/proc/{pid}/fd/{name}"))
                if found:
                    return int(found[1])
        except OSError:
            pass
        return None

    def send(self, node: int, number: signal.Signals) -> None:
        """A signal for one node."""
        os.kill(self.pids()[node], number)

    def kill_node(self, node: int) -> None:
        """SIGKILL for a node; returns when another process is that node, and takes connections.

        kafka-python 3.0.12 forgets a request of a transaction whose coordinator refuses the connection, and then waits
        for ever.
        """
        before = self.pids()[node]
        os.kill(before, signal.SIGKILL)
        until(lambda: self.pids().get(node) not in (None, before), f"node {node} is there again")
        until(lambda: self._takes_connections(node), f"node {node} takes connections")

    def _takes_connections(self, node: int) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port + node - 1)).close()
        except ConnectionRefusedError:
            return False
        return True
