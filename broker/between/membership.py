"""The nodes of one broker, which are processes on one machine, and their addresses.

The nodes have consecutive ids. The first owns the metadata log. All share one data directory, in which each node has a
folder with the address at which the other nodes reach it. The supervisor makes the folder and the secret before any
node starts.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.broker.net.errors import Disconnected
from barnabas.broker.security.principals import NODE

if TYPE_CHECKING:
    from barnabas.broker.registry import Context

#: The folder of the nodes in the data directory.
FOLDER = "nodes"
_ADDRESS = "address"
#: Locked by the process of a node as long as it lives (see `storage.claim`).
LOCK_FILE = ".lock"


@dataclass(frozen=True)
class Membership:
    """A node, one of `count`. The first of them has the id `owner`."""

    node_id: int
    owner: int
    count: int
    data_dir: Path

    @property
    def owns(self) -> bool:
        """Whether this node owns the metadata log."""
        return self.node_id == self.owner

    @property
    def ids(self) -> range:
        """All nodes, including this one."""
        return range(self.owner, self.owner + self.count)

    @property
    def is_beginning(self) -> bool:
        """Whether the owner has not listened since the supervisor started. Then no node has a partition open."""
        return not (self.folder(self.owner) / _ADDRESS).exists()

    def folder(self, node: int) -> Path:
        """The folder of a node in the data directory."""
        return self.data_dir / FOLDER / str(node)

    def is_running(self, node: int) -> bool:
        """Whether the process of a node holds its lock. The kernel releases the lock however the process ends.

        True if the lock cannot be tried, for example because no descriptor is free.
        """
        try:
            fd = os.open(self.folder(node) / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(fd)
        return False

    def announce(self, port: int) -> None:
        """Tell the other nodes the port of this one on the loopback interface. Raises OSError."""
        file = self.folder(self.node_id) / _ADDRESS
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_name(f"{_ADDRESS}.new")
        fresh.write_text(f"{port}\n")
        os.replace(fresh, file)

    def port_of(self, node: int) -> int | None:
        """The port that a node has announced; None if it has not, or if the file is damaged. Raises OSError."""
        try:
            return int((self.folder(node) / _ADDRESS).read_text())
        except (FileNotFoundError, ValueError):
            return None


def check_node(context: Context) -> None:
    """Raises Disconnected for a client that is not a node. For APIs that only nodes use."""
    if context.principal != NODE:
        raise Disconnected(f"{context.api.name} request from a client that is not a node of this broker")
