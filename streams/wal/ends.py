"""The durable ends, asked of the broker that serves the directory."""

from __future__ import annotations

from barnabas.client import admin
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.streams.wal.errors import WalError


def ask_broker(address: str, cluster_id: str, keys: list[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
    """The log start and last stable offset of each partition. Raises WalError, also for a broker of another cluster."""
    try:
        with Cluster(address) as cluster:
            told = admin.cluster_id(cluster)
            if told != cluster_id:
                raise WalError(
                    f"the broker at {address} is of cluster {told}, the data directory of {cluster_id}: "
                    "set bootstrap.servers to the broker that serves the directory, or leave it out"
                )
            first, end = (list_offsets(cluster, keys, special) for special in (EARLIEST, LATEST))
    except ClientError as error:
        raise WalError(f"cannot ask the broker at {address} how far it is: {error}") from None
    return {key: (first[key], end[key]) for key in keys}
