"""Joins messages that came in parts (`--oversize split`). The writers of the topic are not trusted.

A partition has at most one incomplete message. Until it is complete, its position is that of its first part.
"""

from __future__ import annotations

import re

from barnabas.connect.apply.changes import BadMessageError
from barnabas.connect.binlog.oversize import PART
from barnabas.wire.batch import Record

#: The most bytes of a complete message: an untrusted writer could send parts without end.
MOST_BYTES = 256 << 20
_PART = re.compile(rb"([1-9][0-9]{0,8})/([1-9][0-9]{0,8})")
_IDENTITY = ("barnabas.source", "barnabas.gtid", "barnabas.index")


class Parts:
    """The parts of one partition."""

    def __init__(self) -> None:
        self._values: list[bytes] = []
        self._of: tuple[bytes | None, ...] = ()
        self._size = 0
        #: The offset of the first part, while some are missing.
        self.first: int | None = None

    def joined(self, record: Record) -> Record | None:
        """The complete message, at its last part's offset; None while parts are missing. Raises BadMessageError."""
        headers = dict(record.headers)
        told = headers.get(PART)
        if told is None:
            if self._values:
                raise BadMessageError(self._missing("another message came between"))
            return record
        found = _PART.fullmatch(told)
        if found is None:
            raise BadMessageError(f"the header {PART} is {told[:20]!r}, not such as 2/3")
        number, count = int(found[1]), int(found[2])
        of = (*(headers.get(name) for name in _IDENTITY), record.key, found[2])
        if number != len(self._values) + 1 or number > count or (self._values and of != self._of):
            raise BadMessageError(self._missing(f"part {number} of {count} came"))
        if self.first is None:
            self.first, self._of = record.offset, of
        self._values.append(record.value or b"")
        self._size += len(record.value or b"")
        if self._size > MOST_BYTES:
            raise BadMessageError(f"the parts of a message have more than {MOST_BYTES:,} bytes")
        if number < count:
            return None
        whole = Record(record.key, b"".join(self._values), record.timestamp, record.headers, record.offset)
        self._values, self._size, self.first = [], 0, None
        return whole

    def _missing(self, what: str) -> str:
        after = f"part {len(self._values)} of a message" if self._values else "no first part"
        return (
            f"{what} after {after}, so parts of it are lost, or two subscriptions that split write to one topic: begin "
            "with a topic that has all parts"
        )
