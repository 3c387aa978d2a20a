"""Asks the leaders where partitions begin and end (ListOffsets)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

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
#: The most partitions of a request. A broker that opens a log for each of them needs seconds for 10,000.
MOST_ASKED = 10_000


def list_offsets(
    cluster: Cluster, keys: Iterable[TopicPartition], special: int, *, isolation: int = READ_COMMITTED
) -> dict[TopicPartition, int]:
    """The offset for a special value or a timestamp (ms) in each partition, with a request to each leader for up to
    `MOST_ASKED` partitions.

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
    for piece in _pieces(topics):
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                ListOffsetsTopic(topic, [ListOffsetsPartition(index, timestamp=special) for index in partitions])
                for topic, partitions in piece.items()
            ],
        )
        for answer in cluster.broker(leader).ask(request, ListOffsetsResponse).topics:
            for part in answer.partitions:
                yield (answer.name, part.partition_index), part


def _pieces(topics: Mapping[str, Sequence[int]]) -> Iterator[dict[str, list[int]]]:
    """The same partitions in pieces of at most `MOST_ASKED`."""
    keys = [(topic, partition) for topic, partitions in topics.items() for partition in partitions]
    for start in range(0, len(keys), MOST_ASKED):
        piece: dict[str, list[int]] = {}
        for topic, partition in keys[start : start + MOST_ASKED]:
            piece.setdefault(topic, []).append(partition)
        yield piece
