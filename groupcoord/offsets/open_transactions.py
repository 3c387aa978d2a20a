"""Offsets written by open transactions, for one partition of `__consumer_offsets`.

Of two offsets for one partition, the later one in the log counts, whenever their transactions end: it is the one that
compaction keeps. So a plain commit replaces what open transactions have written before, and so does the offset of a
committed transaction.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from barnabas.wire.records.offset_commit import OffsetCommitValue

OffsetKey = tuple[str, str, int]  # group, topic, partition
Value = OffsetCommitValue | None


class OpenTransactions:
    """By producer id and by partition, both in log order. A call's cost depends on its changes, not on the total."""

    def __init__(self) -> None:
        self._of: dict[int, dict[OffsetKey, tuple[int, Value]]] = {}
        #: The producers that have written for a partition, ordered by their last offset there, the oldest first.
        self._at: dict[OffsetKey, OrderedDict[int, int]] = {}
        self._written = 0

    def __bool__(self) -> bool:
        return bool(self._of)

    def write(self, producer_id: int, where: OffsetKey, value: Value) -> bool:
        """Note an offset. Returns whether it is its transaction's first for that partition."""
        self._written += 1
        written = self._of.setdefault(producer_id, {})
        is_first = where not in written
        written[where] = self._written, value
        writers = self._at.setdefault(where, OrderedDict())
        writers[producer_id] = self._written
        writers.move_to_end(producer_id)
        return is_first

    def supersede(self, where: OffsetKey) -> int:
        """A later record replaces this partition's open offsets. Returns in how many transactions there were some."""
        return self._drop(where, self._written + 1)

    def end(self, producer_id: int, *, committed: bool) -> Iterator[tuple[OffsetKey, Value, int]]:
        """End a transaction: yields its offsets, each with the number of other transactions where it replaces one."""
        written = self._of.pop(producer_id, {})
        for where in written:
            self._forget(where, producer_id)
        for where, (order, value) in written.items():
            yield where, value, self._drop(where, order) if committed else 0

    def last(self, where: OffsetKey) -> Value:
        """The last offset written for a partition, in any transaction."""
        writers = self._at.get(where)
        return self._of[next(reversed(writers))][where][1] if writers else None

    def places(self) -> Iterator[OffsetKey]:
        """The partitions, once for each transaction."""
        for written in self._of.values():
            yield from written

    def _drop(self, where: OffsetKey, before: int) -> int:
        count = 0
        writers = self._at.get(where)
        while writers:
            producer_id, order = next(iter(writers.items()))
            if order >= before:
                break
            del self._of[producer_id][where]
            self._forget(where, producer_id)
            count += 1
        return count

    def _forget(self, where: OffsetKey, producer_id: int) -> None:
        writers = self._at[where]
        del writers[producer_id]
        if not writers:
            del self._at[where]
