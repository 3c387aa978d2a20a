"""The aborted transactions whose markers are in a segment, as in Kafka's `.txnindex` file.

An entry says which producer's batches, from the first offset of its transaction to the marker, a read_committed
consumer must skip, and up to where all transactions were decided when the marker was written. The file is written
before the marker, so that whoever sees the marker finds the entry. It can be rebuilt from the log.

Entry (big-endian, 34 bytes): version i16 (0), producer id i64, first offset i64, last offset i64 (the marker's), last
stable offset i64. Entries are in the order of the markers; the last stable offset does not decrease, either.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cache
from operator import le, lt
from typing import NamedTuple

SUFFIX = ".txnindex"
#: A segment whose markers have aborted this many transactions is full, so that its index is read quickly.
MOST_ENTRIES = 32_768
# The entries of a block, for which the start of the oldest transaction is kept.
_BLOCK = 256
_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # the marker's
    #: When the marker was written, every transaction that began before this offset was decided, except this one.
    last_stable_offset: int


class TransactionIndex:
    """The entries of one segment, kept in the file's format."""

    __slots__ = ("_data", "_oldest", "verified")

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        self._data = bytearray()
        #: For each block of entries, where the oldest of its transactions begins.
        self._oldest: list[int] = []
        #: Last offsets of entries that were found to match the log.
        self.verified: set[int] = set()
        for entry in entries:
            self.append(entry)

    @classmethod
    def decode(cls, data: bytes, first: int, end: int) -> TransactionIndex:
        """Decode a file; its markers are at offsets from `first` up to `end`. Raises ValueError if not credible."""
        if len(data) % _ENTRY.size:
            raise ValueError(f"{len(data)} bytes are no whole entries")
        found = cls()
        last, stable, whole = first - 1, 0, _BLOCK * _ENTRY.size
        for at in range(0, len(data), whole):
            block = data[at : at + whole]
            # By columns, which is quick: there may be many entries, and the event loop waits.
            fields = _entries(len(block) // _ENTRY.size).unpack(block)
            begun, ended, decided = fields[2::5], fields[3::5], fields[4::5]
            if (
                any(version != _VERSION for version in set(fields[::5]))
                or min(begun) < 0
                or not all(map(lt, begun, ended))
                or not all(map(lt, (last, *ended), (*ended, end)))
                or not all(map(le, (stable, *decided), decided))
            ):
                raise ValueError(f"an entry between offsets {last} and {ended[-1]} that no marker has")
            last, stable = ended[-1], decided[-1]
            found._oldest.append(min(begun))
        found._data += data
        return found

    def encode(self) -> bytes:
        return bytes(self._data)

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        return len(self._data)

    def __len__(self) -> int:
        return len(self._data) // _ENTRY.size

    def __getitem__(self, number: int) -> AbortedTransaction:
        if not 0 <= number < len(self):
            raise IndexError(number)
        return AbortedTransaction(*_ENTRY.unpack_from(self._data, number * _ENTRY.size)[1:])

    def __iter__(self) -> Iterator[AbortedTransaction]:
        for fields in _ENTRY.iter_unpack(bytes(self._data)):
            yield AbortedTransaction(*fields[1:])

    def append(self, entry: AbortedTransaction) -> None:
        if len(self) % _BLOCK:
            self._oldest[-1] = min(self._oldest[-1], entry.first_offset)
        else:
            self._oldest.append(entry.first_offset)
        self._data += encode_entry(entry)

    def marker_after(self, start: int, count: int) -> tuple[int, int]:
        """How many markers there are from `start` on, and the offset of the one after `count` of them, or -1."""
        first = bisect_left(range(len(self)), start, key=lambda at: self[at].last_offset)
        there = len(self) - first
        return there, self[first + count].last_offset if there > count else -1

    def collect(self, start: int, end: int, found: list[AbortedTransaction]) -> bool:
        """Add the entries with offsets from `start` up to `end` to `found`; whether no later segment can have more."""
        count = len(self)
        at = bisect_left(range(count), start, key=lambda at: self[at].last_offset)
        while at < count:
            block = at // _BLOCK
            following = min((block + 1) * _BLOCK, count)
            if self._oldest[block] < end:
                for number in range(at, following):
                    entry = self[number]
                    if entry.first_offset < end:
                        found.append(entry)
                    if entry.last_stable_offset >= end:
                        return True
            elif self[following - 1].last_stable_offset >= end:
                return True
            at = following
        return False


@cache
def _entries(count: int) -> struct.Struct:
    """The format of `count` entries, at most a block."""
    return struct.Struct(">" + _ENTRY.format[1:] * count)


def encode_entry(entry: AbortedTransaction) -> bytes:
    return _ENTRY.pack(_VERSION, *entry)
