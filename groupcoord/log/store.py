"""The interface of the store for a coordinator's records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from barnabas.groupcoord.log.records import CoordinatorRecord
from barnabas.wire.errors import ErrorCode


class ProducerEpoch(NamedTuple):
    """A producer whose transaction the records belong to."""

    producer_id: int
    producer_epoch: int


class Store(Protocol):
    """Keeps records in order, for each partition of a coordinator's topic."""

    def append(
        self,
        partition: int,
        records: Sequence[CoordinatorRecord],
        done: Callable[[ErrorCode], None],
        *,
        producer: ProducerEpoch | None = None,
    ) -> None:
        """Append all of these together, and call `done` once, when they are durable or have failed.

        With a `producer` they belong to its transaction, and count when it is committed.

        `done` may be called before this returns. For the successful appends to one partition, the calls come in the
        order of the appends. Failed records may still be in the log if the store cannot know; the client will retry.
        """


# The error that a client gets after an error of the store, as in Kafka: temporary errors become "not available", and
# those that mean another owner become "not the coordinator". Both make the client look for the coordinator again.
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
    """A store's error in the form that clients of the group APIs see."""
    return _TOLD.get(error, error)
