"""The offsets that transactions have written and not ended yet, of one partition of `__consumer_offsets`.

Of two offsets for one place, the one that is later in the log counts, whenever their transactions end: it is the one
that compaction keeps. So what is written plainly takes the place of what open transactions have written before, and so
does the offset of a transaction that is committed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from barnabas.wire.records.offset_commit import OffsetCommitValue

OffsetKey = tuple[str, str, int]  # group, topic, partition
Value = OffsetCommitValue | None


class OpenTransactions:
    """By producer id and by place, both in the order of the log. A call costs what it changes, not what there is."""

    def __init__(self) -> None:
        self._of: dict[int, dict[OffsetKey, tuple[int, Value]]] = {}
        #: Who has written for a place, the oldest first: the order of its last offset there.
        self._at: dict[OffsetKey, OrderedDict[int, int]] = {}
        self._written = 0

    def __bool__(self) -> bool:
        return bool(self._of)

    def write(self, producer_id: int, where: OffsetKey, value: Value) -> bool:
        """Note an offset; whether it is the first of its transaction for that place."""
        self._written += 1
        written = self._of.setdefault(producer_id, {})
        is_first = where not in written
        written[where] = self._written, value
        writers = self._at.setdefault(where, OrderedDict())
        writers[producer_id] = self._written
        writers.move_to_end(producer_id)
        return is_first

    def supersede(self, where: OffsetKey) -> int:
        """Something later in the log counts for this place; in how many transactions there was something before."""
        return self._drop(where, self._written + 1)

    def end(self, producer_id: int, *, committed: bool) -> Iterator[tuple[OffsetKey, Value, int]]:
        """What the transaction has written; and in how many others that takes the place of something."""
        written = self._of.pop(producer_id, {})
        for where in written:
            self._forget(where, producer_id)
        for where, (order, value) in written.items():
            yield where, value, self._drop(where, order) if committed else 0

    def last(self, where: OffsetKey) -> Value:
        """What was written for a place last, by any of them."""
        writers = self._at.get(where)
        return self._of[next(reversed(writers))][where][1] if writers else None

    def places(self) -> Iterator[OffsetKey]:
        """The places, once for each transaction."""
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
