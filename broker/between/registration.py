"""On the owner of the metadata: the nodes of the cluster as clients are told of them (KIP-631).

A node is written down once, and again when its addresses are others. So a start that changes nothing writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.wire.records.cluster_metadata import BrokerEndpoint, RegisterBrokerRecord

Addresses = Mapping[str, tuple[str, int]]


class Registration:
    """Writes nodes down."""

    def __init__(self, metadata: MetadataImage, topics: TopicManager) -> None:
        self._metadata, self._topics = metadata, topics

    async def register(self, node: int, addresses: Addresses, rack: str | None) -> None:
        """A node serves at these addresses, (host, port) by the names of listeners. Raises KafkaError."""
        points = [BrokerEndpoint(name, *address) for name, address in addresses.items()]
        record = RegisterBrokerRecord(broker_id=node, end_points=points, rack=rack, fenced=False)
        async with self._topics.changes:
            known = self._metadata.nodes.get(node)
            if known is None or known.record != record:
                await self._topics.commit([record])
