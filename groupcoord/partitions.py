"""The partition of `__consumer_offsets` for a group. Clients and tools compute it too, so it is Java's hash."""

from __future__ import annotations

import array
import sys


def java_string_hash(text: str) -> int:
    """`String.hashCode`: base 31 over UTF-16 code units, wrapped to a signed 32-bit number."""
    units = array.array("H", text.encode("utf-16-le", "surrogatepass"))
    if sys.byteorder == "big":
        units.byteswap()
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def group_partition(group_id: str, partitions: int) -> int:
    """The partition of a group. Kafka takes the absolute value, and 0 where Java has none (the smallest integer)."""
    value = java_string_hash(group_id)
    return 0 if value == -(1 << 31) else abs(value) % partitions
