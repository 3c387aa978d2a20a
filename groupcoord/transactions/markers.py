"""What the coordinator asks of whoever writes markers into partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas.wire.aliases import TopicPartition
from barnabas.wire.batch import Marker
from barnabas.wire.errors import ErrorCode


class Markers(Protocol):
    """Writes the outcome of a transaction into a partition."""

    def write(
        self,
        where: TopicPartition,
        marker: Marker,
        done: Callable[[ErrorCode], None],
        *,
        new_epoch: bool,
        wanted: Callable[[], bool],
    ) -> None:
        """Call `done` once, when the marker is durable or has failed; perhaps before this returns.

        UNKNOWN_TOPIC_OR_PARTITION says that the partition is gone for good. A marker that is repeated, or that comes
        to a partition where the producer has nothing open, succeeds. After any other error it is tried again. One that
        has not left yet is not written once it is not `wanted` any more, and `done` is not called.
        """
