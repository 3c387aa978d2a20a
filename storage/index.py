"""The two sparse indexes of a segment, in Kafka's format.

`.index`: entries (relative offset i32, position i32): the batch at this position ends with this offset.
`.timeindex`: entries (timestamp i64, relative offset i32): no record up to this offset is newer than the timestamp;
records after it may be.

In memory an offset index is an array of `relative offset << 32 | position`, so that bisect (in C) can search it; a time
index stays as its bytes.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right

OFFSET_ENTRY_SIZE = 8
TIME_ENTRY = struct.Struct(">qi")
_POSITION_MASK = 0xFFFFFFFF


def decode_offsets(data: bytes, log_size: int) -> array[int]:
    """The offset index in `data`; ValueError when it cannot belong to a log of `log_size` bytes.

    Kafka preallocates the file of an active segment; the zeros at its end are not entries.
    """
    if len(data) % OFFSET_ENTRY_SIZE:
        raise ValueError("the index is cut off")
    entries = array("Q", data)
    if sys.byteorder == "little":
        entries.byteswap()
    while entries and entries[-1] == 0:
        entries.pop()
    if entries:
        last = entries[-1]
        if (last & _POSITION_MASK) >= log_size or last >> 63 or entries[0] > last:
            raise ValueError("the index does not fit its log")
        if len(set(entries)) != len(entries) or array("Q", sorted(entries)) != entries:
            raise ValueError("the index is not ascending")
    return entries


def encode_offsets(entries: array[int]) -> bytes:
    if sys.byteorder == "little":
        entries = entries[:]
        entries.byteswap()
    return entries.tobytes()


def floor_entry(entries: array[int], relative_offset: int) -> int:
    """The number of the last entry up to `relative_offset`, or -1."""
    return bisect_right(entries, relative_offset << 32 | _POSITION_MASK) - 1


def position_of(entry: int) -> int:
    return entry & _POSITION_MASK


def last_position_up_to(entries: array[int], position: int) -> int:
    """The largest indexed position that is at most `position`, or 0."""
    at = bisect_right(entries, position, key=position_of)
    return entries[at - 1] & _POSITION_MASK if at else 0


def decode_times(data: bytes) -> bytearray:
    """The time index in `data` without preallocated zeros; ValueError when it is damaged."""
    if len(data) % TIME_ENTRY.size:
        raise ValueError("the time index is cut off")
    end = len(data)
    while end and not any(data[end - TIME_ENTRY.size : end]):
        end -= TIME_ENTRY.size
    times = bytearray(data[:end])
    count = end // TIME_ENTRY.size
    if count > 1:
        first, first_offset = time_entry(times, 0)
        last, last_offset = time_entry(times, count - 1)
        if last <= first or last_offset < first_offset or first_offset < 0:
            raise ValueError("the time index is not ascending")
    return times


def time_entry(times: bytes | bytearray, number: int) -> tuple[int, int]:
    timestamp, offset = TIME_ENTRY.unpack_from(times, number * TIME_ENTRY.size)
    return timestamp, offset


def floor_time(times: bytes | bytearray, timestamp: int) -> int:
    """The relative offset from which to look for the first record at or after `timestamp`."""
    count = len(times) // TIME_ENTRY.size
    at = bisect_left(range(count), timestamp, key=lambda number: time_entry(times, number)[0])
    if at < count and time_entry(times, at)[0] == timestamp:
        return time_entry(times, at)[1]
    return time_entry(times, at - 1)[1] if at else 0
