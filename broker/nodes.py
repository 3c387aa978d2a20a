"""The nodes of the cluster, and the addresses that clients get. These depend on the listener that a client uses.

This node is always in the list. The others are registered in the metadata log (KIP-631). A client is told of a node
only if that node has a listener of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.broker.identity import Identity
from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.settings.listeners import NODES


class NodeAddress(NamedTuple):
    """A node as the clients of one listener know it."""

    id: int
    host: str
    port: int
    rack: str | None


class Nodes:
    """All nodes, by id."""

    def __init__(self, identity: Identity, metadata: MetadataImage) -> None:
        self._identity, self._metadata = identity, metadata
        #: The node that owns the metadata. Clients send it their changes of the metadata.
        self.controller_id = identity.node_id

    @property
    def cluster_id(self) -> str:
        return self._identity.cluster_id

    def has(self, node: int) -> bool:
        """Whether there is a node of this id, also one that some clients cannot reach."""
        return node == self._identity.node_id or node in self._metadata.nodes

    def all(self, listener: str) -> list[NodeAddress]:
        """All nodes that clients of a listener can reach, in the order of their ids."""
        return self.some({self._identity.node_id, *self._metadata.nodes}, listener)

    def some(self, ids: Iterable[int], listener: str) -> list[NodeAddress]:
        """Those of the given nodes that clients of a listener can reach, in the order of their ids."""
        return [found for node in sorted(ids) if (found := self.find(node, listener)) is not None]

    def find(self, node: int, listener: str) -> NodeAddress | None:
        """The address of a node for clients of a listener; None if they cannot reach it.

        If another node has handed a client's request on, the client's listener is not known. Then the answer has the
        listener that is easiest to connect to.
        """
        if listener == NODES:
            listener = self._identity.local_listener.name
        if node == self._identity.node_id:
            return NodeAddress(node, *self._identity.advertised(listener), self._identity.rack)
        known = self._metadata.nodes.get(node)
        address = known.addresses.get(listener) if known is not None else None
        return NodeAddress(node, *address, known.rack) if known is not None and address is not None else None
