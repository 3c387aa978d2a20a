"""Transactions in a log that is compacted: which batches are aborted, and which markers outlive their transaction.

The `.txnindex` files say which transactions were aborted. They have no CRC, and a wrong entry would delete records
here. So they are compared with the log before anything is written: `Markers` does that during the first read of the
dirty range. Only the dirty range can have aborted batches: everything below was decided when it was cleaned.

A marker stays as long as any batch of its transaction, with or without records; then it gets a delete horizon.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence

from barnabas.storage.errors import CorruptIndexError, CorruptLogError
from barnabas.storage.files import OpenFile
from barnabas.storage.io import Io, read_file
from barnabas.storage.segment import Segment
from barnabas.storage.txn_index import SUFFIX, AbortedTransaction, TransactionIndex
from barnabas.wire import batch
from barnabas.wire.errors import KafkaError

Source = tuple[Segment, int, bytes | None]


class Markers:
    """The aborted transactions of a log, each with the segment whose index has it."""

    def __init__(self, io: Io, sources: Sequence[Source], first_dirty: int, upto: int) -> None:
        """`sources` are the segments with their ends, and with their index if it must not be read from its file.

        Raises OSError, CorruptIndexError.
        """
        self.aborted: list[AbortedTransaction] = []
        #: Last offsets of transactions whose marker was set aside as damaged: their batches are not deleted.
        self.unproven: set[int] = set()
        self._with_records: set[int] = set()
        self._segments: list[Segment] = []
        #: By producer, in the order of the markers: a producer's transactions do not overlap.
        self._of: dict[int, list[int]] = {}
        for segment, end, known in sources:
            own = Segment(segment.directory, segment.base_offset, size=segment.size)
            data = known
            if data is None:
                try:
                    data = read_file(io, own.path(SUFFIX))
                except FileNotFoundError:
                    continue
            try:
                found = TransactionIndex.decode(data, segment.base_offset, end)
            except ValueError as error:
                raise CorruptIndexError(f"{own.path(SUFFIX)}: {error}", segment) from None
            for entry in found:
                if entry.first_offset < upto:
                    if entry.last_offset >= first_dirty and not _is_proven(io, own, segment, entry):
                        self.unproven.add(entry.last_offset)
                    self.aborted.append(entry)
                    self._segments.append(segment)
        for number, entry in enumerate(self.aborted):
            if entry.last_offset >= first_dirty:
                self._of.setdefault(entry.producer_id, []).append(number)

    def _covering(self, producer_id: int, offset: int) -> int | None:
        """The aborted transaction that contains a producer's batch at an offset."""
        numbers = self._of.get(producer_id, ())
        at = bisect_left(numbers, offset, key=lambda number: self.aborted[number].last_offset)
        return numbers[at] if at < len(numbers) and self.aborted[numbers[at]].first_offset <= offset else None

    def is_aborted(self, header: batch.BatchHeader) -> bool:
        """Whether a transactional batch of the dirty range is aborted, so that its records supersede nothing."""
        if self._covering(header.producer_id, header.base_offset) is not None:
            return True
        self._with_records.add(header.producer_id)
        return False

    def met(self, header: batch.BatchHeader, data: memoryview, segment: Segment) -> None:
        """Check a control batch of the dirty range, in log order. Raises CorruptIndexError if an index denies it."""
        number = self._covering(header.producer_id, header.base_offset)
        if number is not None:
            if self.aborted[number].last_offset != header.base_offset:
                wrong = self._segments[number]
                raise CorruptIndexError(
                    f"{wrong.path(SUFFIX)} does not match the marker at {header.base_offset}", wrong
                )
            return
        try:
            marker = batch.marker_of(data) if header.records_count else None
        except KafkaError:
            return
        if marker is not None and not marker.committed and header.producer_id in self._with_records:
            raise CorruptIndexError(f"{segment.path(SUFFIX)} lacks the marker at {header.base_offset}", segment)
        self._with_records.discard(header.producer_id)


def _is_proven(io: Io, own: Segment, segment: Segment, entry: AbortedTransaction) -> bool:
    """Whether the entry's marker is in the segment. Raises CorruptIndexError if something else is, CorruptLogError."""
    file = OpenFile(io, own.path(), os.O_RDONLY)
    found = own.find(io, file, entry.last_offset, own.size)
    if found is None or found[1] > entry.last_offset:
        return False
    data = io.pread(file.fd, found[2], found[0])
    try:
        header = batch.check(data)
        marker = batch.marker_of(data) if header.is_control else None
    except KafkaError as error:
        raise CorruptLogError(f"{own.path()} at offset {entry.last_offset}: {error}", segment) from None
    if marker is None or marker.committed or marker.producer_id != entry.producer_id:
        raise CorruptIndexError(f"{own.path(SUFFIX)} does not match its log", segment)
    return True


class CleanedTransactions:
    """The transactions during the rewrite. It is given batches and markers in the log's order, from its start."""

    def __init__(self, aborted: Sequence[AbortedTransaction], unproven: set[int], first_dirty: int) -> None:
        self._aborted, self._unproven = aborted, unproven
        self._by_start = sorted(aborted, key=lambda entry: entry.first_offset)
        self._next = 0
        self._first_dirty = first_dirty
        #: By producer: the aborted transaction at this point of the log, and those that have batches here.
        self._passing: dict[int, AbortedTransaction] = {}
        self._with_batches: set[int] = set()
        #: The last offsets of aborted transactions that have no batches left.
        self.dropped: set[int] = set()

    def is_aborted(self, header: batch.BatchHeader) -> bool:
        """Whether the records of a transactional batch are removed."""
        while self._next < len(self._by_start) and self._by_start[self._next].first_offset <= header.last_offset:
            entry = self._by_start[self._next]
            self._passing[entry.producer_id] = entry
            self._next += 1
        self._with_batches.add(header.producer_id)
        passed = self._passing.get(header.producer_id)
        if passed is None or passed.last_offset in self._unproven:
            return False
        # Batches aborted before the dirty range have no records left.
        return self._first_dirty <= passed.last_offset and header.base_offset <= passed.last_offset

    def is_over(self, header: batch.BatchHeader, data: bytes) -> bool:
        """Whether a control batch is a marker whose transaction has no batches left."""
        if not header.records_count:
            return True
        try:
            marker = batch.marker_of(data)
        except KafkaError:
            return False
        if marker is None:
            return False
        entry = self._passing.get(header.producer_id)
        if entry is not None and entry.last_offset <= header.base_offset:
            del self._passing[header.producer_id]
        if header.producer_id in self._with_batches:
            self._with_batches.discard(header.producer_id)
            return False
        if not marker.committed:
            self.dropped.add(header.base_offset)
        return True

    def entries_of(self, group: Sequence[tuple[Segment, int]]) -> list[AbortedTransaction]:
        """The aborted transactions whose markers are in these segments."""
        first, end = group[0][0].base_offset, group[-1][1]
        low = bisect_left(self._aborted, first, key=lambda entry: entry.last_offset)
        high = bisect_left(self._aborted, end, key=lambda entry: entry.last_offset)
        return list(self._aborted[low:high])
