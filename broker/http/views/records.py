"""The records of a topic: pages from a position or back from the end, one whole record, and new ones as events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
import trio

from barnabas.broker.http.asking import Asker
from barnabas.broker.http.messages import Refused, Request, Response, json_answer
from barnabas.broker.http.views.fetching import EARLIEST, LATEST, fetch, offsets, partitions_of
from barnabas.broker.http.views.given import number, text
from barnabas.broker.http.views.reading import MOST_BATCH, MOST_PARTITIONS, Cursor, Reading, Row, by_time, bytes_of
from barnabas.broker.http.views.search import Search, WrongSearch, search_of
from barnabas.broker.http.views.shown import shown
from barnabas.broker.workers import Turns
from barnabas.wire.batch import iter_batches, iter_records
from barnabas.wire.errors import KafkaError

MOST_RECORDS = 200
#: For events: how long one answer stays open, how long a fetch waits, and the most records in each event.
TAIL_SECONDS, TAIL_WAIT_MS, TAIL_RECORDS = 600.0, 5000, 100
TAIL_PAUSE_SECONDS = 0.25


class Records:
    """The views of records, with the threads that examine batches."""

    def __init__(self) -> None:
        self._turns = Turns(2)

    async def page(self, asker: Asker, request: Request) -> Response:
        """A page of records. Query: name, from (newest, oldest, offset, time), at, partition, limit, search, cursor."""
        query = request.query
        topic, search = text(query, "name"), _search(query)
        limit = number(query, "limit", 50, 1, MOST_RECORDS)
        cursor = _cursor(query) or await self._begin(asker, topic, query)
        reading = Reading(self._turns, asker, topic, search, limit, committed=query.get("committed") != "false")
        if cursor.back:
            rows, after = await reading.back(cursor)
        else:
            rows, after = await reading.on(cursor)
        told = {
            "records": [row.json for row in rows],
            "cursor": None if after is None else str(after),
            "looked_at": reading.looked_at,
            "bytes": reading.bytes,
        }
        return json_answer(told)

    async def _begin(self, asker: Asker, topic: str, query: Mapping[str, str]) -> Cursor:
        wanted = number(query, "partition", -1, -1, 2**31 - 1)
        partitions = await partitions_of(asker, topic)
        if wanted >= 0 and wanted not in partitions:
            raise Refused(404, f"{topic} has no partition {wanted}")
        partitions = [wanted] if wanted >= 0 else partitions
        if len(partitions) > MOST_PARTITIONS:
            raise Refused(
                400, f"choose a partition: {topic} has {len(partitions)}, and {MOST_PARTITIONS} can be merged"
            )
        starts = await offsets(asker, {topic: partitions}, EARLIEST)
        ends = await offsets(asker, {topic: partitions}, LATEST)
        first = {p: starts[topic, p] for p in partitions}
        end = {p: ends[topic, p] for p in partitions}
        where = query.get("from", "newest")
        if where == "newest":
            return Cursor(at=first, until=end, back=True)
        if where == "offset":
            at = number(query, "at", 0)
            return Cursor(at={p: min(max(at, first[p]), end[p]) for p in first}, until=end)
        if where == "time":
            times = await offsets(asker, {topic: partitions}, number(query, "at", 0))
            found = {p: times[topic, p] for p in partitions}
            return Cursor(at={p: at if at >= 0 else end[p] for p, at in found.items()}, until=end)
        if where == "oldest":
            return Cursor(at=first, until=end)
        raise Refused(400, "from must be newest, oldest, offset or time")

    async def _one(self, asker: Asker, query: Mapping[str, str]) -> Any:
        """The record at an offset. Raises Refused."""
        topic, partition, offset = text(query, "name"), number(query, "partition", 0), number(query, "offset", 0)
        part = (await fetch(asker, topic, {partition: offset}, committed=False))[partition]
        client = asker.client

        def find() -> Any:
            for header, batch in iter_batches(bytes_of(part)):
                if header.last_offset >= offset and not header.is_control:
                    for record in iter_records(batch, max_decompressed=MOST_BATCH):
                        if record.offset == offset:
                            return record
                        if record.offset > offset:
                            return None
            return None

        try:
            found = await self._turns.run(client, find)
        except (KafkaError, UnicodeDecodeError) as error:
            raise Refused(400, f"{topic}-{partition} at {offset}: {error}") from None
        if found is None:
            raise Refused(404, f"{topic}-{partition} has no record at offset {offset}")
        return found

    async def record(self, asker: Asker, request: Request) -> Response:
        """One record, with as much of its key and value as a page can show. Query: name, partition, offset."""
        found = await self._one(asker, request.query)
        return json_answer(shown(number(request.query, "partition", 0), found, whole=True))

    async def download(self, asker: Asker, request: Request) -> Response:
        """The bytes of a record's value, or of its key (`part=key`)."""
        found = await self._one(asker, request.query)
        value = found.key if request.query.get("part") == "key" else found.value
        headers = [("Content-Disposition", 'attachment; filename="record"'), ("Cache-Control", "no-store")]
        return Response(200, value or b"", "application/octet-stream", headers)

    async def tail(self, asker: Asker, request: Request) -> Response:
        """New records as server-sent events. Query: name, partition, search."""
        topic, search = text(request.query, "name"), _search(request.query)
        cursor = await self._begin(asker, topic, {**request.query, "from": "newest"})
        positions = dict(cursor.until)
        reading = Reading(self._turns, asker, topic, search, TAIL_RECORDS, committed=True)
        return Response(200, self._events(reading, positions), "text/event-stream", [("Cache-Control", "no-store")])

    async def _events(self, reading: Reading, positions: dict[int, int]) -> AsyncGenerator[bytes, None]:
        """A few events each second with up to `TAIL_RECORDS` records each. If more arrive, only the newest are sent."""
        yield b"retry: 2000\n\n"
        until = trio.current_time() + TAIL_SECONDS
        while trio.current_time() < until:
            try:
                parts = await fetch(reading.asker, reading.topic, positions, wait_ms=TAIL_WAIT_MS)
            except Refused as error:
                yield b"event: refused\ndata: " + bytes(error.response.body) + b"\n\n"  # type: ignore[arg-type]
                return
            rows: list[Row] = []
            left_out = 0
            await reading.pass_over(parts, positions)
            limit = TAIL_RECORDS // max(1, sum(bool(len(part.records or b"")) for part in parts.values())) + 1
            for partition, part in parts.items():
                if part.high_watermark - positions[partition] > TAIL_RECORDS * 100:
                    left_out += part.high_watermark - positions[partition] - TAIL_RECORDS
                    positions[partition] = part.high_watermark - TAIL_RECORDS
                elif len(part.records or b""):
                    found = await reading.look({partition: part}, positions, limit)
                    positions.update(found.positions)
                    rows += found.rows
            told = {"records": [row.json for row in by_time(rows)], "left_out": left_out}
            yield b"data: " + msgspec.json.encode(told) + b"\n\n"
            await trio.sleep(TAIL_PAUSE_SECONDS)


def _search(query: Mapping[str, str]) -> Search | None:
    try:
        return search_of(query.get("search", ""))
    except WrongSearch as error:
        raise Refused(400, f"the search: {error}") from None


def _cursor(query: Mapping[str, str]) -> Cursor | None:
    given = query.get("cursor", "")
    if not given:
        return None
    try:
        return Cursor.parse(given)
    except ValueError:
        raise Refused(400, "the cursor is not valid") from None
