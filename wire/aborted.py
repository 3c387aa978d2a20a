"""Finds the batches of aborted transactions in a Fetch answer (KIP-98), which a read_committed reader skips."""

from __future__ import annotations

from barnabas.wire.batch import BatchHeader, marker_of
from barnabas.wire.messages.fetch import PartitionData


class Aborted:
    """The aborted transactions of one partition's answer. Ask about each batch, in order."""

    def __init__(self, part: PartitionData) -> None:
        self._coming = sorted((each.first_offset, each.producer_id) for each in part.aborted_transactions or ())
        self._now: set[int] = set()

    def has(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a batch belongs to an aborted transaction. Raises KafkaError for an invalid control batch."""
        while self._coming and self._coming[0][0] <= header.last_offset:
            self._now.add(self._coming.pop(0)[1])
        if header.is_control:
            marker = marker_of(batch)
            if marker is not None and not marker.committed:
                self._now.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._now
