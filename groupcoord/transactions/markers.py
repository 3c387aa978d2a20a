"""The interface through which the coordinator has markers written into partitions."""

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

        UNKNOWN_TOPIC_OR_PARTITION says that the partition is gone for good. A repeated marker, or one for a partition
        where the producer has nothing open, succeeds. After any other error the coordinator tries again. A marker that
        waits to be sent is dropped, without a call of `done`, once it is no longer `wanted`.
        """
