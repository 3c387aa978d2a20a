"""What storage raises when the disk, not the request, is at fault."""

from __future__ import annotations

from barnabas.wire.errors import ErrorCode, KafkaError


class StorageError(KafkaError):
    """The vnode or data directory cannot be used: KAFKA_STORAGE_ERROR to a client, the message to the operator."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)
