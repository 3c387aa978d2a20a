"""A page of records, read forwards or backwards from offsets. Threads examine the batches, within a limit of cost.

A page ends when it has as many records as wanted, or when it has cost enough: bytes of log, examined records, fetches.
Its cursor then says where the next page continues, even in the middle of a search. So each request reads a bounded
amount, and the browser asks again for more.

Batches are decompressed and examined in one of two threads, which visitors use in turn. Every few hundred records, a
thread releases Python's lock. A batch that decompresses to more than `MOST_BATCH` is reported, not shown.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from barnabas.broker.http.asking import Asker
from barnabas.broker.http.messages import Refused
from barnabas.broker.http.views.fetching import EARLIEST, fetch, offsets
from barnabas.broker.http.views.search import Search
from barnabas.broker.http.views.shown import shown
from barnabas.broker.workers import Turns
from barnabas.wire.aborted import Aborted
from barnabas.wire.batch import iter_batches, iter_records
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.fetch import PartitionData

#: The most partitions that one page merges.
MOST_PARTITIONS = 300
#: The most that a page may cost, and the most for one call in a thread.
PAGE_BYTES, PAGE_LOOKS, PAGE_FETCHES = 32 << 20, 200_000, 200
LOOK_DECOMPRESSED, LOOK_RECORDS = 32 << 20, 50_000
#: Copying decompressed data holds Python's lock, for about 2 ms per MiB.
MOST_BATCH = 4 << 20
#: The most offsets of each partition in one step backwards.
MOST_WIDTH = 100_000
_HEX = re.compile("[0-9a-f]{1,16}")


class Cursor(NamedTuple):
    """Where the next page begins and ends, by partition. `back` means towards the beginning.

    Its string fits into the head of a request: `b~0.1f.2a-1.0.2b`, with partition, begin and end in hexadecimal.
    """

    at: dict[int, int]
    until: dict[int, int]
    back: bool = False

    def __str__(self) -> str:
        places = (f"{p:x}.{self.at[p]:x}.{self.until[p]:x}" for p in self.at)
        return ("b~" if self.back else "f~") + "-".join(places)

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The cursor in a string. Raises ValueError."""
        way, _, rest = text.partition("~")
        cursor = cls({}, {}, way == "b")
        for place in rest.split("-"):
            index, at, until = (int(number, 16) if _HEX.fullmatch(number) else -1 for number in place.split("."))
            if not (0 <= index < 2**31 and 0 <= at < 2**63 and 0 <= until < 2**63):
                raise ValueError("a number outside the range of partitions or offsets")
            cursor.at[index], cursor.until[index] = at, until
        if way not in ("b", "f") or len(cursor.at) > MOST_PARTITIONS:
            raise ValueError("no direction, or too many partitions")
        return cursor


class Row(NamedTuple):
    """A record to show. The thread that finds it makes its JSON, too, which spares the event loop work."""

    timestamp: int
    partition: int
    offset: int
    json: msgspec.Raw


class Look(NamedTuple):
    """What a thread finds in one answer of Fetch."""

    rows: list[Row]
    positions: dict[int, int]
    looked_at: int


class Reading:
    """One page of a topic, while it is read."""

    def __init__(
        self, turns: Turns, asker: Asker, topic: str, search: Search | None, limit: int, *, committed: bool
    ) -> None:
        self.asker, self.topic, self._turns, self._search, self._limit = asker, topic, turns, search, limit
        self._committed = committed
        self.looked_at = self.bytes = self._fetches = 0

    @property
    def _is_spent(self) -> bool:
        return self.bytes >= PAGE_BYTES or self.looked_at >= PAGE_LOOKS or self._fetches >= PAGE_FETCHES

    async def on(self, cursor: Cursor) -> tuple[list[Row], Cursor | None]:
        """Read forwards from the cursor, up to its end offsets."""
        at, until = dict(cursor.at), cursor.until
        rows: list[Row] = []
        while len(rows) < self._limit and not self._is_spent:
            open_ = {p: at[p] for p in at if at[p] < until.get(p, 0)}
            if not open_:
                return by_time(rows), None
            found = await self._fetch(open_, until, max(1, -(-(self._limit - len(rows)) // len(open_))))
            rows += found.rows
            at.update(found.positions)
        return by_time(rows), Cursor(at, until)

    async def back(self, cursor: Cursor) -> tuple[list[Row], Cursor | None]:
        """Read the last records before the cursor's end, window by window towards the beginning.

        A window is a range of offsets in each partition. After a window with few records, the next one is wider. A
        window with more than fit on a page is read again, narrower.
        """
        first, end = cursor.at, dict(cursor.until)
        rows: list[Row] = []
        width = -(-self._limit // max(1, len(end)))
        least = width
        while len(rows) < self._limit and not self._is_spent:
            starts = {p: max(first.get(p, 0), end[p] - width) for p in end if end[p] > first.get(p, 0)}
            if not starts:
                return by_time(rows)[::-1], None
            found = await self._window(starts, end, None if width == least else 2 * self._limit)
            if found is None:
                width = max(least, width // 16)
                continue
            rows += found
            end.update(starts)
            if 2 * len(found) < self._limit:
                width = min(2 * width, MOST_WIDTH)
        return by_time(rows)[::-1], Cursor(first, end, back=True)

    async def _window(self, starts: Mapping[int, int], ends: Mapping[int, int], most: int | None) -> list[Row] | None:
        """All records of a window; None if there are more than `most`."""
        rows: list[Row] = []
        at = dict(starts)
        while left := {p: offset for p, offset in at.items() if offset < ends[p]}:
            limit = LOOK_RECORDS if most is None else most // len(left) + 1
            found = await self._fetch(left, ends, limit)
            rows += found.rows
            at.update(found.positions)
            if most is not None and len(rows) > most:
                return None
        return rows

    async def _fetch(self, positions: dict[int, int], until: Mapping[int, int], limit: int) -> Look:
        """Fetch once and examine the result. Offsets that were deleted are skipped."""
        self._fetches += 1
        parts = await fetch(self.asker, self.topic, positions, committed=self._committed)
        if not parts:  # the visitor was over a quota and has waited: try once more
            parts = await fetch(self.asker, self.topic, positions, committed=self._committed)
        if not parts:
            raise Refused(429, "over the quota of consumer_byte_rate: try again later")
        gone = await self._gone(parts)
        parts = {p: part for p, part in parts.items() if p not in gone}
        look = await self.look(parts, positions, limit, until)
        look.positions.update({p: max(start, until[p] if start < positions[p] else 0) for p, start in gone.items()})
        if not gone and not any(len(part.records or b"") for part in parts.values()):
            look.positions.update({p: until[p] for p in positions})  # there is nothing to show before the ends
        return look

    async def _gone(self, parts: Mapping[int, PartitionData]) -> dict[int, int]:
        """For the partitions whose log no longer has the requested offset: where it begins now."""
        gone = [p for p, part in parts.items() if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE]
        starts = await offsets(self.asker, {self.topic: gone}, EARLIEST) if gone else {}
        return {p: starts[self.topic, p] for p in gone}

    async def pass_over(self, parts: Mapping[int, PartitionData], positions: dict[int, int]) -> None:
        """Move positions that a log no longer has to the log's beginning."""
        positions.update(await self._gone(parts))

    async def look(
        self,
        parts: dict[int, PartitionData],
        positions: Mapping[int, int],
        limit: int,
        until: Mapping[int, int] | None = None,
    ) -> Look:
        """Examine fetched data in a thread, for at most `limit` rows of each partition."""
        search = self._search
        self.bytes += sum(len(part.records or b"") for part in parts.values())
        found = await self._turns.run(
            self.asker.client, lambda: look_through(parts, positions, search, limit, until or {})
        )
        self.looked_at += found.looked_at
        return found


def look_through(
    parts: Mapping[int, PartitionData],
    positions: Mapping[int, int],
    search: Search | None,
    limit: int,
    until: Mapping[int, int],
) -> Look:
    """The records that match, and how far each partition was examined. For a thread."""
    look = Look([], dict(positions), 0)
    looked_at = decompressed = 0
    for partition, part in parts.items():
        rows: list[Row] = []
        position, end = positions[partition], until.get(partition, 2**63 - 1)
        aborted = Aborted(part)
        for header, batch in iter_batches(bytes_of(part)):
            is_spent = looked_at >= LOOK_RECORDS or decompressed >= LOOK_DECOMPRESSED
            if len(rows) >= limit or position >= end or is_spent:
                break
            try:
                if not aborted.has(header, batch) and not header.is_control:
                    for record in iter_records(batch, max_decompressed=MOST_BATCH):
                        if record.offset < position:
                            continue
                        if record.offset >= end or len(rows) >= limit:
                            break
                        looked_at += 1
                        if not looked_at % 256:
                            time.sleep(0)  # release Python's lock
                        decompressed += len(record.key or b"") + len(record.value or b"")
                        position = record.offset + 1
                        if search is None or search(record):
                            rows.append(_row(partition, record.offset, record.timestamp, shown(partition, record)))
            except (KafkaError, UnicodeDecodeError) as error:
                rows.append(_problem(partition, max(position, header.base_offset), header.max_timestamp, error))
                position = header.last_offset + 1
            if len(rows) < limit:
                position = max(position, header.last_offset + 1)
        look.positions[partition] = min(max(position, positions[partition]), max(end, positions[partition]))
        look.rows.extend(rows)
    return look._replace(looked_at=looked_at)


def _row(partition: int, offset: int, timestamp: int, told: dict[str, Any]) -> Row:
    return Row(timestamp, partition, offset, msgspec.Raw(msgspec.json.encode(told)))


def _problem(partition: int, offset: int, timestamp: int, error: Exception) -> Row:
    """A row for a batch that cannot be shown."""
    told = {"partition": partition, "offset": offset, "timestamp": timestamp, "problem": str(error)[:300]}
    return _row(partition, offset, timestamp, {**told, "key": None, "value": None, "headers": [], "header_count": 0})


def by_time(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row[:3])


def bytes_of(part: PartitionData) -> bytes:
    """The fetched bytes of a partition, which may have to be read from disk. For a thread."""
    records: Any = part.records
    if isinstance(records, bytes):
        return records
    if records is None:
        return b""
    return bytes(records if isinstance(records, memoryview) else records.read())  # in memory if another node sent it
