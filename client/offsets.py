"""Asks the leaders where partitions begin and end (ListOffsets)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.client.cluster import MOVED, Cluster
from barnabas.client.errors import ClientError, check
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


def list_offsets(
    cluster: Cluster, keys: Iterable[TopicPartition], special: int, *, isolation: int = READ_COMMITTED
) -> dict[TopicPartition, int]:
    """The offset for a special value or a timestamp (ms) in each partition, with one request to each leader.

    If a leader has moved, the new one is looked up. Raises ClientError.
    """
    left = dict.fromkeys(keys)
    found: dict[TopicPartition, int] = {}

    def attempt() -> None:
        refused: list[tuple[TopicPartition, int]] = []
        for leader, topics in cluster.by_leader(left, "offsets of").items():
            for key, part in _ask(cluster, leader, topics, special, isolation):
                if part.error_code:
                    refused.append((key, part.error_code))
                else:
                    found[key] = part.offset
        for key in found:
            left.pop(key, None)
        for (topic, _), code in refused:
            if code in MOVED:
                cluster.forget_leaders(topic)
        for (topic, partition), code in refused:
            check(code, f"offsets of {topic}-{partition}")
        for topic, partition in left:
            raise ClientError(f"offsets of {topic}-{partition}: the broker's answer does not have it")

    cluster.again(attempt)
    return found


def _ask(
    cluster: Cluster, leader: int, topics: dict[str, list[int]], special: int, isolation: int
) -> Iterator[tuple[TopicPartition, ListOffsetsPartitionResponse]]:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            ListOffsetsTopic(topic, [ListOffsetsPartition(partition, timestamp=special) for partition in partitions])
            for topic, partitions in topics.items()
        ],
    )
    for answer in cluster.broker(leader).ask(request, ListOffsetsResponse).topics:
        for part in answer.partitions:
            yield (answer.name, part.partition_index), part
