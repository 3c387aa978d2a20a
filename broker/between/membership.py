"""Which nodes one broker has, in processes of one machine, and where they find each other.

The nodes have consecutive ids. The first owns the metadata log. All have one data directory, in which each has a folder
with its address: where the other nodes reach it. A supervisor has made the folder and the secret before any starts.
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

#: The folder in the data directory.
FOLDER = "nodes"
_ADDRESS = "address"
#: Held by the process of a node, for as long as it lives (see `storage.claim`).
LOCK_FILE = ".lock"


@dataclass(frozen=True)
class Membership:
    """One of `count` nodes, of which the first has the id `owner`."""

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
        """The nodes, this one among them."""
        return range(self.owner, self.owner + self.count)

    @property
    def is_beginning(self) -> bool:
        """Whether the owner has let no node ask it since the supervisor began: then nobody has a partition open."""
        return not (self.folder(self.owner) / _ADDRESS).exists()

    def folder(self, node: int) -> Path:
        """What a node has for itself in the data directory."""
        return self.data_dir / FOLDER / str(node)

    def is_running(self, node: int) -> bool:
        """Whether the process of a node holds its lock. The kernel gives it free when it has ended, however it did.

        True where that cannot be looked at, as without a free descriptor.
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
        """Tell the other nodes where this one is: a port on the loopback. Raises OSError."""
        file = self.folder(self.node_id) / _ADDRESS
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_name(f"{_ADDRESS}.new")
        fresh.write_text(f"{port}\n")
        os.replace(fresh, file)

    def port_of(self, node: int) -> int | None:
        """Where a node has said that it is; None if it has not, or its file is damaged. Raises OSError."""
        try:
            return int((self.folder(node) / _ADDRESS).read_text())
        except (FileNotFoundError, ValueError):
            return None


def check_node(context: Context) -> None:
    """Raises Disconnected for a client that is no node: who asks what only nodes ask of each other is not served."""
    if context.principal != NODE:
        raise Disconnected(f"{context.api.name} request of a client that is no node of this broker")
