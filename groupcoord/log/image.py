"""The state in the log of one `__consumer_offsets` partition, read from start to end."""

from __future__ import annotations

from barnabas.groupcoord.log.records import OffsetEntry, parse_record
from barnabas.groupcoord.offsets.open_transactions import OffsetKey, OpenTransactions
from barnabas.wire.records.group_metadata import GroupMetadataValue
from barnabas.wire.records.offset_commit import OffsetCommitValue

NO_PRODUCER = -1


class PartitionImage:
    """The last state of every group and offset; records are applied in log order.

    Offsets that a transaction committed count from its end marker on, as on the broker that wrote them. A transaction
    without a marker is kept as open.
    """

    def __init__(self) -> None:
        self.groups: dict[str, GroupMetadataValue] = {}
        self.offsets: dict[OffsetKey, OffsetCommitValue] = {}
        self.open_transactions = OpenTransactions()

    def apply(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER) -> None:
        """Apply one data record. `producer_id` is given only if its batch is transactional."""
        entry = parse_record(key, value)
        if entry is None:
            return
        if isinstance(entry, OffsetEntry):
            where = (entry.key.group, entry.key.topic, entry.key.partition)
            if producer_id == NO_PRODUCER:
                self.open_transactions.supersede(where)
                self._set_offset(where, entry.value)
            else:
                self.open_transactions.write(producer_id, where, entry.value)
        elif entry.value is None:
            self.groups.pop(entry.key.group, None)
        else:
            self.groups[entry.key.group] = entry.value

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply a control record of that producer."""
        for where, value, _ in self.open_transactions.end(producer_id, committed=committed):
            if committed:
                self._set_offset(where, value)

    def _set_offset(self, where: OffsetKey, value: OffsetCommitValue | None) -> None:
        if value is None:
            self.offsets.pop(where, None)
        else:
            self.offsets[where] = value
