"""The partitions of a coordinator's log that this broker coordinates.

A partition is a *shard*: it is loaded when this broker becomes its owner, and unloaded when it no longer is. Requests
for keys in a loading shard are refused with COORDINATOR_LOAD_IN_PROGRESS, for keys of other brokers with
NOT_COORDINATOR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from barnabas.wire.errors import ErrorCode, KafkaError


class OwnedShard:
    """One partition; `is_loaded` when its log has been read to the end."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.is_loaded = False


S = TypeVar("S", bound=OwnedShard)


class OwnedShards(Generic[S]):
    """All shards of a coordinator. A key is the id of a group or transaction."""

    def __init__(self, partition_of: Callable[[str], int]) -> None:
        self.by_partition: dict[int, S] = {}
        self.partition_of = partition_of

    def of(self, key: str) -> S:
        """The loaded shard of a key. Raises KafkaError if it is not on this broker or not loaded yet."""
        shard = self.by_partition.get(self.partition_of(key))
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "it is coordinated elsewhere")
        if not shard.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"partition {shard.partition} is being read")
        return shard

    def has(self, shard: S) -> bool:
        """Whether the shard is still loaded here."""
        return self.by_partition.get(shard.partition) is shard
