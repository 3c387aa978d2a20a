"""Requests about partitions that several views make: their list, offsets by time, records, and sizes on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.broker.http.asking import Asker, check
from barnabas.broker.security.operations import DESCRIBE_CLUSTER
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

EARLIEST, LATEST = -2, -1
READ_COMMITTED = 1
BY_NAME = 12  # the last version of Fetch that names topics
#: The most bytes of one answer, and of each partition in it. A larger batch comes alone.
FETCH_BYTES, PARTITION_BYTES = 4 << 20, 512 << 10


async def partitions_of(asker: Asker, topic: str) -> list[int]:
    """The partitions of a topic. Raises Refused."""
    wanted = [MetadataRequestTopic(name=topic)]
    (found,) = (await asker.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))).topics
    check(found.error_code, topic)
    return sorted(part.partition_index for part in found.partitions)


async def offsets(asker: Asker, topics: Mapping[str, Sequence[int]], timestamp: int) -> dict[tuple[str, int], int]:
    """Offsets by time, asked for at most 500 partitions at a time; -1 if there is none. Raises Refused."""
    found: dict[tuple[str, int], int] = {}
    everything = [(name, index) for name, indexes in topics.items() for index in indexes]
    for start in range(0, len(everything), 500):
        asked: dict[str, list[ListOffsetsPartition]] = {}
        for name, index in everything[start : start + 500]:
            asked.setdefault(name, []).append(ListOffsetsPartition(partition_index=index, timestamp=timestamp))
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name, parts) for name, parts in asked.items()]
        )
        for topic in (await asker.ask(request)).topics:
            for part in topic.partitions:
                check(part.error_code, f"{topic.name}-{part.partition_index}")
                found[topic.name, part.partition_index] = part.offset
    return found


async def fetch(
    asker: Asker, topic: str, positions: Mapping[int, int], *, committed: bool = True, wait_ms: int = 0
) -> dict[int, PartitionData]:
    """Fetch once from partitions of a topic. Raises Refused, except for an offset that is out of range."""
    wanted = [
        FetchPartition(partition=p, fetch_offset=at, partition_max_bytes=PARTITION_BYTES) for p, at in positions.items()
    ]
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=READ_COMMITTED if committed else 0,
        topics=[FetchTopic(topic=topic, partitions=wanted)],
    )
    answer = await asker.ask(request, BY_NAME)
    check(answer.error_code, topic)
    found: dict[int, PartitionData] = {}
    for each in answer.responses:
        for part in each.partitions:
            if part.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
                check(part.error_code, f"{topic}-{part.partition_index}")
            found[part.partition_index] = part
    return found


async def log_dirs(asker: Asker, topics: Mapping[str, Sequence[int]] | None) -> list[DescribeLogDirsResult]:
    """The sizes of partitions on disk, of all topics by default. Empty if the visitor may not describe the cluster."""
    if not asker.may(DESCRIBE_CLUSTER):
        return []
    wanted = None if topics is None else [DescribableLogDirTopic(name, list(parts)) for name, parts in topics.items()]
    answer = await asker.ask(DescribeLogDirsRequest(topics=wanted))
    found: list[DescribeLogDirsResult] = answer.results
    return found
