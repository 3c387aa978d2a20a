"""On the owner of the metadata: the nodes of the cluster, as clients see them (KIP-631).

A node is written to the metadata once, and again when its addresses change. A start without changes writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.wire.records.cluster_metadata import BrokerEndpoint, RegisterBrokerRecord

Addresses = Mapping[str, tuple[str, int]]


class Registration:
    """Writes nodes to the metadata."""

    def __init__(self, metadata: MetadataImage, topics: TopicManager) -> None:
        self._metadata, self._topics = metadata, topics

    async def register(self, node: int, addresses: Addresses, rack: str | None) -> None:
        """Register a node that serves at these addresses: (host, port) by the listener's name. Raises KafkaError."""
        points = [BrokerEndpoint(name, *address) for name, address in addresses.items()]
        record = RegisterBrokerRecord(broker_id=node, end_points=points, rack=rack, fenced=False)
        async with self._topics.changes:
            known = self._metadata.nodes.get(node)
            if known is None or known.record != record:
                await self._topics.commit([record])
