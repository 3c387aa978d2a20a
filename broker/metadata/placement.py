"""Which node leads a new partition: one of those that lead fewest."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

from barnabas.broker.metadata.image import Leader, MetadataImage
from barnabas.wire.errors import ErrorCode, KafkaError


class Placement:
    """Spreads partitions over `nodes`."""

    def __init__(self, metadata: MetadataImage, nodes: Sequence[int]) -> None:
        self._metadata = metadata
        self.nodes = nodes

    def place(self, indexes: Iterable[int], nodes: Sequence[int] | None = None) -> dict[int, Leader]:
        """Leaders for new partitions: the given `nodes`, one for each, or else those that lead fewest now.

        Raises KafkaError INVALID_REPLICA_ASSIGNMENT for an unknown node.
        """
        if nodes is not None:
            self.check([[node] for node in nodes])
            return {index: Leader(node, 0) for index, node in zip(indexes, nodes, strict=True)}
        next_node = spread(self._metadata.led, self.nodes)
        return {index: Leader(next(next_node), 0) for index in indexes}

    def check(self, assignments: Iterable[Sequence[int]]) -> None:
        """Raises KafkaError INVALID_REPLICA_ASSIGNMENT unless every partition is assigned to one known node."""
        for nodes in assignments:
            if len(nodes) != 1 or nodes[0] not in self.nodes:
                have = ", ".join(map(str, self.nodes))
                there = (
                    f"only broker {have}" if len(self.nodes) == 1 else f"the brokers {have}, and one for a partition"
                )
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The manual partition assignment names brokers {list(nodes)}; this cluster has {there}.",
                )


def spread(led: Mapping[int, int], nodes: Sequence[int]) -> Iterator[int]:
    """An endless series of nodes: each time the one that leads fewest, counting those given before."""
    heap = [(led.get(node, 0), node) for node in nodes]
    heapq.heapify(heap)
    while True:
        count, node = heap[0]
        yield node
        heapq.heapreplace(heap, (count + 1, node))
