"""The durable ends, asked of the broker that serves the directory."""

from __future__ import annotations

from client.cluster import ClientError, Cluster, check
from streams.wal.errors import WalError
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from wire.messages.metadata import MetadataRequest, MetadataResponse

_EARLIEST, _LATEST = -2, -1
_READ_COMMITTED = 1


def ask_broker(address: str, cluster_id: str, keys: list[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
    """The log start and last stable offset of each partition. Raises WalError, also for a broker of another cluster."""
    try:
        with Cluster(address) as cluster:
            told = cluster.any(MetadataRequest(topics=[]), MetadataResponse).cluster_id
            if told != cluster_id:
                raise WalError(
                    f"the broker at {address} is of cluster {told}, the data directory of {cluster_id}: "
                    "set bootstrap.servers to the broker that serves the directory, or leave it out"
                )
            first, end = (_list_offsets(cluster, keys, special) for special in (_EARLIEST, _LATEST))
    except ClientError as error:
        raise WalError(f"cannot ask the broker at {address} how far it is: {error}") from None
    return {key: (first[key], end[key]) for key in keys}


def _list_offsets(cluster: Cluster, keys: list[tuple[str, int]], special: int) -> dict[tuple[str, int], int]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, partition in keys:
        topics.setdefault(topic, []).append(ListOffsetsPartition(partition, timestamp=special))
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=_READ_COMMITTED,
        topics=[ListOffsetsTopic(topic, partitions) for topic, partitions in topics.items()],
    )
    found = {}
    for answer in cluster.any(request, ListOffsetsResponse).topics:
        for part in answer.partitions:
            check(part.error_code, f"offsets of {answer.name}-{part.partition_index}")
            found[(answer.name, part.partition_index)] = part.offset
    return found
