"""Which batches of a Fetch answer are of aborted transactions (KIP-98): a read_committed reader passes over them."""

from __future__ import annotations

from barnabas.wire.batch import BatchHeader, marker_of
from barnabas.wire.messages.fetch import PartitionData


class Aborted:
    """Of one partition's answer. Ask of each batch, in their order."""

    def __init__(self, part: PartitionData) -> None:
        self._coming = sorted((each.first_offset, each.producer_id) for each in part.aborted_transactions or ())
        self._now: set[int] = set()

    def has(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a batch is of an aborted transaction. Raises KafkaError for a control batch that is none."""
        while self._coming and self._coming[0][0] <= header.last_offset:
            self._now.add(self._coming.pop(0)[1])
        if header.is_control:
            marker = marker_of(batch)
            if marker is not None and not marker.committed:
                self._now.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._now
