"""The byte-level work of compaction: finds the last offset of each key, and removes superseded records from batches.

It is done in C if that was built (`_compact.c`). Python versions give the same results for any bytes, which a test
checks. Fill a `KeyMap` over a range of offsets, then ask which records stay.

A key is identified by a 128-bit hash with a random secret for each map. Clients do not know the secret, so they cannot
construct two keys that collide, which would lose records.

`latest` is the last offset that the map covers. A record up to there stays if its key has no later record in the map;
but a tombstone (a null value) is removed when its batch's delete horizon has passed (KIP-534). Records after `latest`
stay. Offsets never change, nor does the offset range of a batch.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.wire import batch
from barnabas.wire.aliases import BytesLike
from barnabas.wire.errors import KafkaError
from barnabas.wire.varint import read_long_varint, write_varint

#: Why `index` and `filter` stop: a batch is incomplete; the map is full; the next batch is left to the caller
#: (compressed, transactional, control); the next batch is damaged; the next batch is at or after the end.
MORE, FULL, SPECIAL, DAMAGED, END = range(5)

TRANSACTIONAL, CONTROL, HORIZON = 0x10, 0x20, 0x40
_CODEC, _APPEND_TIME = 0x07, 0x08
_SPECIAL = _CODEC | TRANSACTIONAL | CONTROL
_LEAST, _MOST = -(2**63), 2**63 - 1
_MOST_OFFSET = _MOST - 1
_MOST_BASE = _MOST_OFFSET - (2**31 - 1)
_TIME_ENTRY = struct.Struct(">qi")


class _Found(NamedTuple):
    """The part of a record that matters here, and its position in the bytes."""

    offset: int
    timestamp: int
    key: bytes | None
    is_tombstone: bool
    start: int
    after_timestamp: int
    end: int


class KeyMapInPython:
    """The Python version of the map in C. One call at a time."""

    def __init__(self, slots: int, most: int, secret: BytesLike, /) -> None:
        """Room for `most` keys, in `slots` slots of `SLOT_BYTES`."""
        if slots < 2 or not 1 <= most < slots or len(secret) != 16:
            raise ValueError("a bound out of range")
        self._most, self._secret = most, bytes(secret)
        self._offsets: dict[bytes, int] = {}

    @property
    def count(self) -> int:
        return len(self._offsets)

    def index(
        self, data: BytesLike, pos: int, low: int, high: int, start: int, end: int, /
    ) -> tuple[int, int, int, int]:
        """Index the keys of the records from offset `start` on, batch by batch from `pos` up to a batch at `end`.

        The batches have offsets from `low` up to `high`, or are damaged. Returns the position of the batch where it
        stopped, the least offset that this batch may have, the last offset that is indexed or need not be (-1 if there
        is none), and why it stopped. A full map may stop in the middle of a batch. A batch whose records cannot be read
        is skipped.
        """
        if not 0 <= pos <= len(data) or low < 0 or high > _MOST_OFFSET:
            raise ValueError("a bound out of range")
        latest = -1
        while True:
            header, status = _batch_at(data, pos, low, high)
            if header is None:
                return pos, low, latest, status
            if header.base_offset >= end:
                return pos, low, latest, END
            if header.attributes & _SPECIAL:
                return pos, low, latest, SPECIAL
            after = pos + header.size_in_bytes
            try:
                latest, full = self._note(bytes(data[pos + batch.HEADER_SIZE : after]), header, start)
            except ValueError:
                latest, full = header.last_offset, False
            if full:
                return pos, low, latest, FULL
            pos, low = after, header.last_offset + 1

    def index_records(
        self, records: BytesLike, count: int, base_offset: int, last_offset: int, start: int, /
    ) -> tuple[int, bool]:
        """Like `index`, for one batch's decompressed records. Returns the last offset, and whether the map is full.
        Raises ValueError if these are not its records.
        """
        return self._note(bytes(records), _header(count, base_offset, last_offset), start)

    def _note(self, records: bytes, header: batch.BatchHeader, start: int) -> tuple[int, bool]:
        for record in list(_records(records, header)):
            if record.offset >= start and record.key is not None:
                known = self._hash(record.key)
                if known not in self._offsets and len(self._offsets) >= self._most:
                    return record.offset - 1, True
                self._offsets[known] = record.offset
        return header.last_offset, False

    def filter(
        self,
        data: BytesLike,
        pos: int,
        low: int,
        high: int,
        latest: int,
        now: int,
        horizon: int,
        lasts: BytesLike,
        /,
    ) -> tuple[bytes, int, int, int, int, int, int, int]:
        """What stays of the batches from `pos` on, which have offsets from `low` up to `high`, or are damaged.

        `horizon` is the removal time for tombstones seen for the first time. `lasts` are the last offsets of batches
        that stay even if empty: a sorted array of 64-bit numbers. Returns the batches, the position where it stopped,
        the least offset there, and why; the position of the last batch if nothing of it stays, else -1; how many
        records were read, how many stay, and how many batches could not be read and therefore stay.
        """
        if not 0 <= pos <= len(data) or memoryview(lasts).nbytes % 8 or low < 0 or high > _MOST_OFFSET:
            raise ValueError("a bound out of range")
        kept_lasts = set(array("q", bytes(lasts)))
        out = bytearray()
        read = kept = opaque = 0
        dropped = -1
        while True:
            header, status = _batch_at(data, pos, low, high)
            if header is not None and header.base_offset <= latest and header.attributes & _SPECIAL:
                header, status = None, SPECIAL
            if header is None:
                return bytes(out), pos, low, status, dropped, read, kept, opaque
            after = pos + header.size_in_bytes
            whole = bytes(data[pos:after])
            found: bytes | None = whole
            if header.base_offset > latest:
                read, kept = read + header.records_count, kept + header.records_count
            else:
                try:
                    records, count, *rest = self._retain(whole[batch.HEADER_SIZE :], header, latest, now, horizon)
                    read, kept = read + header.records_count, kept + count
                    found = _made_of(header, whole, records, count, *rest)
                    if found is None and header.last_offset in kept_lasts:
                        found = emptied(header)
                except ValueError:
                    opaque += 1
            dropped = pos if found is None else -1
            out += found or b""
            pos, low = after, header.last_offset + 1

    def filter_records(
        self,
        records: BytesLike,
        count: int,
        base_offset: int,
        last_offset: int,
        base_timestamp: int,
        max_timestamp: int,
        attributes: int,
        latest: int,
        now: int,
        horizon: int,
        /,
    ) -> tuple[bytes | None, int, int, int, int]:
        """What stays of the decompressed records of one batch; None if that is all of them, unchanged.

        Also returns how many stay, the base and maximum timestamp, and whether the former is a delete horizon. Raises
        ValueError if these are not its records.
        """
        header = _header(count, base_offset, last_offset, base_timestamp, max_timestamp, attributes)
        return self._retain(bytes(records), header, latest, now, horizon)

    def _retain(
        self, records: bytes, header: batch.BatchHeader, latest: int, now: int, horizon: int
    ) -> tuple[bytes | None, int, int, int, int]:
        expired = header.has_delete_horizon and now >= header.base_timestamp
        found = list(_records(records, header))
        kept = [record for record in found if self._stays(record, latest, expired)]
        newest = max((record.timestamp for record in kept), default=-1)
        max_timestamp = header.max_timestamp if header.attributes & _APPEND_TIME else max(newest, -1)
        tombstones = any(record.is_tombstone for record in kept)
        if tombstones and not header.has_delete_horizon and header.last_offset <= latest:
            rebased = _rebased(records, header, kept, horizon)
            if rebased is not None:
                return rebased, len(kept), horizon, max_timestamp, 1
        is_set = int(header.has_delete_horizon)
        if len(kept) == len(found):
            return None, len(kept), header.base_timestamp, max_timestamp, is_set
        whole = b"".join(records[record.start : record.end] for record in kept)
        return whole, len(kept), header.base_timestamp, max_timestamp, is_set

    def _stays(self, record: _Found, latest: int, expired: bool) -> bool:
        if record.offset > latest:
            return True
        if record.key is None or (record.is_tombstone and expired):
            return False
        return self._offsets.get(self._hash(record.key), -1) <= record.offset

    def _hash(self, key: bytes) -> bytes:
        return hashlib.blake2b(key, digest_size=16, key=self._secret).digest()


def _batch_at(data: BytesLike, pos: int, low: int, high: int) -> tuple[batch.BatchHeader | None, int]:
    """The header of the complete batch at `pos`; without one, the reason."""
    if len(data) - pos < batch.HEADER_SIZE:
        return None, MORE
    header = batch.parse_header(data, pos)
    if header.size_in_bytes < batch.HEADER_SIZE or header.magic != batch.MAGIC:
        return None, DAMAGED
    if header.size_in_bytes > len(data) - pos:
        return None, MORE
    try:
        batch.check(data, pos)
    except KafkaError:
        return None, DAMAGED
    if not low <= header.base_offset <= header.last_offset < high:
        return None, DAMAGED
    return header, MORE


def _header(
    count: int,
    base_offset: int,
    last_offset: int,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    attributes: int = 0,
) -> batch.BatchHeader:
    if not (0 <= count < 2**31 and 0 <= base_offset <= _MOST_BASE and 0 <= last_offset - base_offset < 2**31):
        raise ValueError("a bound out of range")
    delta = last_offset - base_offset
    return batch.BatchHeader(
        base_offset, 0, 0, batch.MAGIC, 0, attributes, delta, base_timestamp, max_timestamp, -1, -1, -1, count
    )


def _records(data: bytes, header: batch.BatchHeader) -> Iterator[_Found]:
    """The records of a batch. Raises ValueError if the bytes contradict the header."""
    pos, previous = 0, -1
    if header.records_count < 0:
        raise ValueError("a negative count of records")
    try:
        for _ in range(header.records_count):
            start = pos
            length, pos = read_long_varint(data, pos, 32)
            end = pos + length
            if not pos < end <= len(data):
                raise ValueError("a wrong length")
            content = data[:end]
            delta, pos = read_long_varint(content, pos + 1, 64)
            timestamp = header.base_timestamp + delta
            after_timestamp = pos
            offset, pos = read_long_varint(content, pos, 32)
            if not _LEAST <= timestamp <= _MOST or not previous < offset <= header.last_offset_delta:
                raise ValueError("a wrong timestamp or offset")
            previous = offset
            key, pos = _blob(content, pos)
            value, pos = _blob(content, pos)
            base = header.base_offset
            yield _Found(base + offset, timestamp, key, value is None, start, after_timestamp, end)
            pos = end
    except IndexError:
        raise ValueError("a record is cut off") from None
    if pos != len(data):
        raise ValueError("bytes after the last record")


def _blob(data: bytes, pos: int) -> tuple[bytes | None, int]:
    size, pos = read_long_varint(data, pos, 32)
    if not -1 <= size <= len(data) - pos:
        raise ValueError("a wrong length")
    return (None, pos) if size < 0 else (data[pos : pos + size], pos + size)


def _rebased(records: bytes, header: batch.BatchHeader, kept: list[_Found], horizon: int) -> bytes | None:
    """The records with timestamps relative to the horizon; None if one is too far from it."""
    out = bytearray()
    for record in kept:
        timestamp = header.max_timestamp if header.attributes & _APPEND_TIME else record.timestamp
        if not _LEAST <= timestamp - horizon <= _MOST:
            return None
        content = bytearray(1)
        write_varint(content, timestamp - horizon)
        content += records[record.after_timestamp : record.end]
        write_varint(out, len(content))
        out += content
    return bytes(out)


def emptied(header: batch.BatchHeader) -> bytes:
    """The batch without its records. The offsets, the producer and its sequences stay."""
    return batch.assemble_batch(
        b"",
        records_count=0,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=batch.NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        attributes=header.attributes & (_APPEND_TIME | TRANSACTIONAL | CONTROL),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.partition_leader_epoch,
    )


def remade(
    header: batch.BatchHeader, records: BytesLike, count: int, base_timestamp: int, max_timestamp: int, horizon: int
) -> bytes:
    """The batch with these records instead of its own. `horizon` says that the base timestamp is a horizon."""
    return batch.assemble_batch(
        records,
        records_count=count,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        attributes=header.attributes | (HORIZON if horizon else 0),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.partition_leader_epoch,
    )


def _made_of(
    header: batch.BatchHeader,
    whole: bytes,
    records: bytes | None,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    horizon: int,
) -> bytes | None:
    if not count:
        return None
    return whole if records is None else remade(header, records, count, base_timestamp, max_timestamp, horizon)


def index_batches_in_python(
    data: BytesLike,
    base_offset: int,
    position: int,
    interval: int,
    since_entry: int,
    max_timestamp: int,
    max_timestamp_offset: int,
    indexed_timestamp: int,
    /,
) -> tuple[bytes, bytes, int, int, int, int]:
    """The entries of both indexes for complete batches, which begin at `position` in a segment.

    Returns the offset index as 64-bit numbers in native order, the time index as in its file, and the state for the
    next call, in the form of this call's arguments: bytes since the last entry, the newest timestamp, the last offset
    of its batch, and the newest indexed timestamp.
    """
    entries, times, pos = array("Q"), bytearray(), 0
    while len(data) - pos >= batch.HEADER_SIZE:
        header = batch.parse_header(data, pos)
        size = header.size_in_bytes
        if not batch.HEADER_SIZE <= size <= len(data) - pos:
            break
        if header.max_timestamp > max_timestamp:
            max_timestamp, max_timestamp_offset = header.max_timestamp, header.last_offset
        if since_entry > interval:
            entries.append((header.last_offset - base_offset) << 32 | (position + pos))
            if max_timestamp > indexed_timestamp:
                times += _TIME_ENTRY.pack(max_timestamp, max_timestamp_offset - base_offset)
                indexed_timestamp = max_timestamp
            since_entry = 0
        since_entry += size
        pos += size
    if pos != len(data):
        raise ValueError("these are not whole batches")
    return entries.tobytes(), bytes(times), since_entry, max_timestamp, max_timestamp_offset, indexed_timestamp


KeyMap = KeyMapInPython
index_batches = index_batches_in_python
#: The size of a map's slot; in Python, a dict entry with its key and value.
SLOT_BYTES = 200
#: Whether the C version is used.
NATIVE = False
try:
    from barnabas.wire import _compact
except ImportError:
    pass
else:
    KeyMap, index_batches = _compact.KeyMap, _compact.index_batches  # type: ignore[assignment]
    SLOT_BYTES, NATIVE = 24, True
