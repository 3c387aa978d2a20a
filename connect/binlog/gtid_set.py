"""MySQL's GTIDs: the set of transactions that a server has executed, or that a reader has read.

    3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7,...      as text; intervals have both their ends in them

In the binary form, an interval's end is the first number after it.
Source: "GTID Sets", COM_BINLOG_DUMP_GTID and "Previous_gtids" of MySQL's documentation. Not tested against a server.
"""

from __future__ import annotations

import re
import struct
import uuid
from bisect import bisect_right

from barnabas.connect.binlog.events import EventError

_MOST = 1 << 63
_INTERVAL_TEXT = re.compile(r"([1-9][0-9]{0,18})(?:-([1-9][0-9]{0,18}))?")
_HEAD, _INTERVAL = struct.Struct("<Q"), struct.Struct("<QQ")
Interval = tuple[int, int]  # its first number, and the one after its last


class GtidSet:
    """The transaction numbers of each server, as ordered intervals that do not touch."""

    def __init__(self) -> None:
        self._of: dict[str, list[Interval]] = {}

    def add(self, server: str, first: int, end: int) -> None:
        """Add the numbers from `first` to before `end`."""
        found = self._of.setdefault(server, [])
        if found and found[-1][1] == first:  # the usual case: the next transaction
            found[-1] = (found[-1][0], end)
            return
        at = bisect_right(found, (first, _MOST))
        if at and found[at - 1][1] >= first:
            at -= 1
            first = found[at][0]
        behind = at
        while behind < len(found) and found[behind][0] <= end:
            end = max(end, found[behind][1])
            behind += 1
        found[at:behind] = [(first, end)]

    def has(self, other: GtidSet) -> bool:
        """Whether this set contains all of another one."""
        return all(
            any(mine[0] <= first and end <= mine[1] for mine in self._of.get(server, []))
            for server, intervals in other._of.items()
            for first, end in intervals
        )

    def __str__(self) -> str:
        return ",".join(
            ":".join([server, *(f"{first}-{end - 1}" if end - first > 1 else f"{first}" for first, end in intervals)])
            for server, intervals in sorted(self._of.items())
        )

    def encoded(self) -> bytes:
        """The encoding that COM_BINLOG_DUMP_GTID uses."""
        out = _HEAD.pack(len(self._of))
        for server, intervals in sorted(self._of.items()):
            out += uuid.UUID(server).bytes + _HEAD.pack(len(intervals))
            out += b"".join(_INTERVAL.pack(*interval) for interval in intervals)
        return out


def gtid_set_of(text: str) -> GtidSet:
    """A set from its text. Raises ValueError."""
    made = GtidSet()
    for part in filter(None, (part.strip() for part in text.split(","))):
        server, *intervals = (each.strip() for each in part.split(":"))
        if not intervals or len(server) != 36:
            raise ValueError(f"{part[:60]!r} is not a part of a GTID set")
        name = str(uuid.UUID(server))
        for interval in intervals:
            found = _INTERVAL_TEXT.fullmatch(interval)
            first, end = (int(found[1]), int(found[2] or found[1]) + 1) if found is not None else (1, 0)
            if not first < end <= _MOST:
                raise ValueError(f"{interval[:60]!r} is not an interval of a GTID set")
            made.add(name, first, end)
    return made


def decoded(body: bytes) -> GtidSet:
    """A set from bytes, encoded as in PREVIOUS_GTIDS. Raises EventError."""
    made = GtidSet()
    try:
        (servers,) = _HEAD.unpack_from(body)
        if servers >> 56:
            raise EventError("GTIDs with tags are not supported")
        at = _HEAD.size
        for _ in range(servers):
            server = str(uuid.UUID(bytes=body[at : at + 16]))
            (count,) = _HEAD.unpack_from(body, at + 16)
            at += 16 + _HEAD.size
            for _ in range(count):
                first, end = _INTERVAL.unpack_from(body, at)
                if not 0 < first < end <= _MOST:
                    raise ValueError(f"an interval from {first} to {end}")
                made.add(server, first, end)
                at += _INTERVAL.size
    except (struct.error, ValueError) as error:
        raise EventError(f"a set of GTIDs cannot be read: {error}") from None
    return made
