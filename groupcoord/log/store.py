"""What a coordinator asks of whoever keeps its records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from barnabas.groupcoord.log.records import CoordinatorRecord
from barnabas.wire.errors import ErrorCode


class ProducerEpoch(NamedTuple):
    """A producer in whose transaction records are written."""

    producer_id: int
    producer_epoch: int


class Store(Protocol):
    """Keeps records in order, per partition of a coordinator's topic."""

    def append(
        self,
        partition: int,
        records: Sequence[CoordinatorRecord],
        done: Callable[[ErrorCode], None],
        *,
        producer: ProducerEpoch | None = None,
    ) -> None:
        """Append all of these together; call `done` once, when they are durable or have failed.

        With a `producer` they are part of its transaction, and count when that is committed.

        `done` may be called before this returns. Among those that succeed in one partition the calls come in the order
        of the appends. What has failed may still be in the log, if the store cannot know; the client will try again.
        """


# What the client is told when the store says no. Kafka's mapping: what may pass becomes "not available", what says that
# another broker has the partition becomes "not the coordinator", and both send the client to look for it again.
_TOLD = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def told(error: ErrorCode) -> ErrorCode:
    """The error of a store as a client of the group APIs sees it."""
    return _TOLD.get(error, error)
