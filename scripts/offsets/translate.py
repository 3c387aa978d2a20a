"""Translates positions between two logs that hold the same records at different offsets.

A mirrored or restored topic has other gaps or another beginning. The record that a group would read next is searched
for in the other log, by its time or its content:

    time     the first record there that is not older
    content  the record there with the same key, timestamp and CRC of its value, near that time

If the group has read everything, the last record is searched for instead, and the position is the one after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from barnabas.scripts.offsets.store import Bounds, Partition, Position, Problem
from barnabas.wire.batch import Record
from barnabas.wire.crc import crc32c

TIME, CONTENT = "time", "content"
#: How many records are searched for one with the same content.
WINDOW = 1000


class Logs(Protocol):
    """The records of a cluster. Its methods raise ClientError."""

    def bounds(self, partitions: Sequence[Partition]) -> Mapping[Partition, Bounds | None] | None: ...

    def records(self, partition: Partition, start: int, most: int) -> list[Record]:
        """Up to `most` records from an offset on."""

    def offset_at(self, partition: Partition, timestamp: int) -> int | None:
        """The offset of the first record that is not older than a timestamp; None if there is none."""


class Identity(NamedTuple):
    """What identifies a record, whatever its offset."""

    key: bytes | None
    timestamp: int
    crc: int | None


def identity_of(record: Record) -> Identity:
    """The record's identity, which its copies share."""
    return Identity(record.key, record.timestamp, None if record.value is None else crc32c(record.value))


def translate(
    here: Logs, there: Logs, positions: Mapping[Partition, Position], how: str, group: str
) -> tuple[dict[Partition, Position], list[Problem]]:
    """The positions in the other log, and those without a match. Metadata is kept; old leader epochs are dropped."""
    bounds_here, bounds_there = here.bounds(list(positions)), there.bounds(list(positions))
    assert bounds_here is not None
    assert bounds_there is not None, "both places have logs"
    found: dict[Partition, Position] = {}
    problems = []
    for partition, position in positions.items():
        own, other = bounds_here.get(partition), bounds_there.get(partition)
        try:
            offset = _one(here, there, partition, position.offset, own, other, how)
            found[partition] = Position(offset, position.metadata)
        except Unmatched as error:
            problems.append(Problem(f"group {group}, {partition}", f"offset {position.offset} {error}"))
    return found, problems


class Unmatched(Exception):
    """The other log has no such position."""


def _one(
    here: Logs, there: Logs, partition: Partition, offset: int, own: Bounds | None, other: Bounds | None, how: str
) -> int:
    if own is None or other is None:
        raise Unmatched(f"is of a partition that is not {'here' if own is None else 'there'}")
    if not own.start <= offset <= own.end:
        raise Unmatched(f"is outside the log here, {own.start} to {own.end}")
    following = here.records(partition, offset, 1)
    if following:
        record, behind = following[0], 0
    else:
        before = here.records(partition, max(own.start, offset - WINDOW), WINDOW)
        if not before:
            raise Unmatched("has no record before or behind it that could be looked for")
        record, behind = before[-1], 1
    if how == TIME:
        at = there.offset_at(partition, record.timestamp + behind)
        return other.end if at is None else at
    return _same(there, partition, record, other) + behind


def _same(there: Logs, partition: Partition, record: Record, other: Bounds) -> int:
    """The offset of the one identical record."""
    near = there.offset_at(partition, record.timestamp)
    start = max(other.start, other.end - WINDOW) if near is None else near
    wanted = identity_of(record)
    matches = [each.offset for each in there.records(partition, start, WINDOW) if identity_of(each) == wanted]
    if not matches:
        raise Unmatched(f"has no match within {WINDOW} records from offset {start} there")
    if len(matches) > 1:
        raise Unmatched(f"has {len(matches)} matches there, the first at offset {matches[0]}")
    return matches[0]
