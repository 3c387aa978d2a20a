"""The offsets that transactions have written and not ended yet, of one partition of `__consumer_offsets`.

Of two offsets for one place, the one that is later in the log counts, whenever their transactions end: it is the one
that compaction keeps. So what is written plainly takes the place of what open transactions have written before, and so
does the offset of a transaction that is committed.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.wire.records.offset_commit import OffsetCommitValue

OffsetKey = tuple[str, str, int]  # group, topic, partition
Value = OffsetCommitValue | None


class OpenTransactions:
    """By producer id, in the order of the log."""

    def __init__(self) -> None:
        self._of: dict[int, dict[OffsetKey, tuple[int, Value]]] = {}
        self._written = 0

    def __bool__(self) -> bool:
        return bool(self._of)

    def write(self, producer_id: int, where: OffsetKey, value: Value) -> bool:
        """Note an offset; whether it is the first of its transaction for that place."""
        self._written += 1
        written = self._of.setdefault(producer_id, {})
        is_first = where not in written
        written[where] = self._written, value
        return is_first

    def supersede(self, where: OffsetKey) -> int:
        """Something later in the log counts for this place; in how many transactions there was something before."""
        return self._drop(where, self._written + 1)

    def end(self, producer_id: int, *, committed: bool) -> Iterator[tuple[OffsetKey, Value, int]]:
        """What the transaction has written; and in how many others that takes the place of something."""
        for where, (order, value) in self._of.pop(producer_id, {}).items():
            yield where, value, self._drop(where, order) if committed else 0

    def places(self) -> Iterator[OffsetKey]:
        """The places, once for each transaction."""
        for written in self._of.values():
            yield from written

    def _drop(self, where: OffsetKey, before: int) -> int:
        count = 0
        for written in self._of.values():
            found = written.get(where)
            if found is not None and found[0] < before:
                del written[where]
                count += 1
        return count
