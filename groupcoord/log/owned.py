"""The partitions of a coordinator's log that are coordinated here.

A partition is a *shard*: loaded when this broker becomes its owner, unloaded when it no longer is. Requests for keys in
a shard that is loading are refused with COORDINATOR_LOAD_IN_PROGRESS, for others with NOT_COORDINATOR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from barnabas.wire.errors import ErrorCode, KafkaError


class OwnedShard:
    """One partition; `is_loaded` when the log has been read to its end."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.is_loaded = False


S = TypeVar("S", bound=OwnedShard)


class OwnedShards(Generic[S]):
    """All shards of a coordinator: which key, a group's or transaction's id, is where."""

    def __init__(self, partition_of: Callable[[str], int]) -> None:
        self.by_partition: dict[int, S] = {}
        self.partition_of = partition_of

    def of(self, key: str) -> S:
        """The loaded shard of a key. Raises KafkaError if it is not here or not yet."""
        shard = self.by_partition.get(self.partition_of(key))
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "it is coordinated elsewhere")
        if not shard.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"partition {shard.partition} is being read")
        return shard

    def has(self, shard: S) -> bool:
        """Whether it has not been unloaded since."""
        return self.by_partition.get(shard.partition) is shard
