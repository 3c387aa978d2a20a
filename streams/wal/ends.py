"""The durable ends, asked of the broker that serves the directory."""

from __future__ import annotations

from barnabas.client import admin
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.streams.wal.errors import WalError
from barnabas.wire.aliases import TopicPartition


class BrokerEnds:
    """Asks a broker, and keeps the connections: a stream asks several times a second for as long as it runs."""

    def __init__(self, cluster_id: str) -> None:
        """`cluster_id` is that of the data directory."""
        self._cluster_id = cluster_id
        self._address = ""
        self._kept: Cluster | None = None

    def ask(self, address: str, keys: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """The log start and last stable offset of each partition.

        Raises WalError, also if the broker belongs to another cluster.
        """
        if self._kept is not None and self._address == address:
            try:
                return self._ends(self._kept, keys)
            except ClientError:
                pass  # the broker may have been restarted: try new connections
        self.close()
        try:
            self._kept, self._address = Cluster(address), address
            return self._ends(self._kept, keys)
        except ClientError as error:
            self.close()
            raise WalError(f"cannot ask the broker at {address} for the end of its log: {error}") from None

    def _ends(self, cluster: Cluster, keys: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        with cluster.without_patience():
            told = admin.cluster_id(cluster)
            if told != self._cluster_id:
                raise WalError(
                    f"the broker at {self._address} is of cluster {told}, the data directory of {self._cluster_id}: "
                    "set bootstrap.servers to the broker that serves the directory, or leave it out"
                )
            first, end = (list_offsets(cluster, keys, special) for special in (EARLIEST, LATEST))
        return {key: (first[key], end[key]) for key in keys}

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next request opens others."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()
