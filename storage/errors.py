"""The exceptions of storage for a fault of the disk, not of the request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.storage.segment import Segment


class StorageError(KafkaError):
    """The vnode or data directory cannot be used: KAFKA_STORAGE_ERROR to a client, the message to the operator."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class NodeRunsError(StorageError):
    """A data directory is in use by a node whose supervisor has ended."""


class NotLeaderError(StorageError):
    """The partition is not this node's any more: NOT_LEADER_OR_FOLLOWER to a client."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class CorruptLogError(Exception):
    """A segment holds bytes that are not a batch, or an index does not match it; recovery repairs it."""

    def __init__(self, message: str, segment: Segment | None = None) -> None:
        super().__init__(message)
        self.segment = segment


class CorruptIndexError(CorruptLogError):
    """The `.txnindex` of a segment contradicts its log; the index is rebuilt."""

    segment: Segment

    def __init__(self, message: str, segment: Segment) -> None:
        super().__init__(message, segment)
