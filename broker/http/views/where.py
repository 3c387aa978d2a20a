"""A search with a condition of SQL, `WHERE amount > 10`: the records of a topic that meet it, as they are found.

The condition is a visitor's text, so another process evaluates it (`python -m barnabas.streams.select where`), whose
CPU, memory and time are bounded. That process gets the topic, its columns and the offsets to look through, and answers
with offsets. It has no connection to the broker and no secret. The records at these offsets are fetched here, as the
visitor.

The answer has one JSON object a line: `records`, `looked_at` (records so far) and `cursor` (where the next page
begins). The last line has `end` besides (`all`, `page` or `bound`), or only `error`.

Source: decision 71.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any

import msgspec
import trio

from barnabas.broker.http.asking import Asker, Broker, check
from barnabas.broker.http.messages import Refused, Request, Response
from barnabas.broker.http.views.fetching import EARLIEST, LATEST, fetch, fetch_some, offsets
from barnabas.broker.http.views.given import number, text
from barnabas.broker.http.views.reading import Cursor, Row, look_through
from barnabas.broker.http.views.records import MOST_RECORDS, Records
from barnabas.broker.http.views.search import MOST_SEARCH, Search
from barnabas.broker.jobs import spark_here
from barnabas.broker.metadata.image import RESOURCE_TOPIC
from barnabas.broker.workers import Turns
from barnabas.wire.batch import Record
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.queries.keys import VALUES
from barnabas.wire.queries.plan import Values
from barnabas.wire.text import SPARK_REMEDY
from barnabas.wire.uuids import encode_uuid

#: How many processes search at a time; visitors take turns.
PROCESSES = 2
#: What a process may take: seconds from its start, seconds of CPU, and bytes of address space.
SEARCH_SECONDS, SEARCH_CPU_SECONDS, SEARCH_MEMORY = 30.0, 30, 2 << 30
#: The most bytes of a line of its answer, which has some hundred numbers.
MOST_LINE = 256 << 10
#: A fetch of one record gets its batch, and what follows in so many bytes.
_FETCH_BYTES = 16 << 10
_OF_TOPIC = 1  # the source of a setting that the topic itself has
_WHERE = re.compile(r"^WHERE(\s+|$)", re.IGNORECASE)
#: What of the broker's environment a process needs to find Python's modules.
_KEPT = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
#: Arrow and C reserve address space for each thread; the search has one.
_ONE_THREAD = {"ARROW_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}


class Conditions:
    """The searches with conditions."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._turns = Turns(PROCESSES)

    async def found(self, asker: Asker, broker: Broker, request: Request) -> Response:
        """Query: as for a page of records; `search` is the condition, with or without WHERE before it."""
        query = request.query
        topic, condition = text(query, "name"), condition_of(text(query, "search"))
        limit = number(query, "limit", 50, 1, MOST_RECORDS)
        missing = spark_here.absent(("pyarrow",))
        if missing:
            raise Refused(501, f"a condition needs pyarrow, which is not installed: {SPARK_REMEDY}")
        cursor = await _within(asker, topic, await self._records.begin(asker, topic, query))
        await fetch(asker, topic, dict(list(cursor.until.items())[:1]))  # refused if the visitor may not read
        asked = {
            "data_dir": str(broker.config.data_dir),
            "topic": topic,
            "topic_id": await _topic_id(asker, topic),
            "values": await _values(asker, topic),
            "condition": condition,
            "at": cursor.at,
            "until": cursor.until,
            "back": cursor.back,
            "limit": limit,
            "memory": SEARCH_MEMORY,
            "cpu_seconds": SEARCH_CPU_SECONDS,
        }
        lines = self._lines(asker, broker, topic, cursor, asked)
        return Response(200, lines, "application/x-ndjson", [("Cache-Control", "no-store")])

    async def _lines(
        self, asker: Asker, broker: Broker, topic: str, cursor: Cursor, asked: Mapping[str, Any]
    ) -> AsyncGenerator[bytes, None]:
        looked_at = 0
        end = "bound"
        try:
            async with self._turns.turn(asker.client):
                process = _Process(asked)
                try:
                    await process.start()
                    while (told := await process.line()) is not None:
                        if "done" in told:
                            end = "all" if told["done"] else "page"
                            break
                        _check(told, topic)
                        rows = await self._rows(asker, topic, told["found"])
                        (cursor.until if cursor.back else cursor.at).update(
                            {int(p): place for p, place in told["places"].items()}
                        )
                        looked_at = told["read"]
                        shown = {"records": [row.json for row in rows], "looked_at": looked_at, "cursor": str(cursor)}
                        yield msgspec.json.encode(shown) + b"\n"
                finally:
                    with trio.CancelScope(shield=True):
                        await process.end()
        except _Unreadable as error:
            broker.log.warning("http.search.failed", topic=topic, reason=error)
            yield msgspec.json.encode({"error": await _why_unreadable(asker, topic)}) + b"\n"
        except Refused as error:
            yield bytes(error.response.body) + b"\n"  # type: ignore[arg-type]
        else:
            rest = None if end == "all" else str(cursor)
            last = {"records": [], "looked_at": looked_at, "cursor": rest, "end": end, "seconds": SEARCH_SECONDS}
            yield msgspec.json.encode(last) + b"\n"

    async def _rows(self, asker: Asker, topic: str, found: list[tuple[int, int]]) -> list[Row]:
        """The records at these offsets, in this order. Those that are gone, or that the visitor may not see, are left
        out. Raises Refused."""
        wanted: dict[int, list[int]] = {}
        for partition, offset in sorted(found, reverse=True):
            wanted.setdefault(partition, []).append(offset)  # the first one is the last of the list
        rows: dict[tuple[int, int], Row] = {}
        while wanted:
            positions = {p: left[-1] for p, left in wanted.items()}
            parts = await fetch_some(asker, topic, positions, partition_bytes=_FETCH_BYTES)
            is_empty = not any(len(part.records or b"") for part in parts.values())
            for p, part in parts.items():
                left = wanted[p]
                if not len(part.records or b"") and not part.error_code and not is_empty:
                    continue  # there was no room for it in the answer: the next one has it
                call = partial(look_through, {p: part}, {p: left[-1]}, _at(left), len(left), {p: left[0] + 1})
                look = await self._records.turns.run(asker.client, call)
                rows.update({(p, row.offset): row for row in look.rows})
                passed = max(look.positions[p], left[-1] + 1)
                while left and left[-1] < passed:
                    left.pop()
            wanted = {p: left for p, left in wanted.items() if left}
        order = [rows.pop((p, offset)) for p, offset in found if (p, offset) in rows]
        return [*order, *rows.values()]  # also batches that cannot be shown, with the offset of their problem


def condition_of(text_: str) -> str:
    """The condition in a search. Raises Refused."""
    given = text_.strip()
    if len(given) > MOST_SEARCH:
        raise Refused(400, f"the condition: it has at most {MOST_SEARCH:,} characters")
    condition = _WHERE.sub("", given)
    if not condition:
        raise Refused(400, "the condition: expected one after WHERE, like WHERE amount > 10")
    return condition


def _at(places: list[int]) -> Search:
    wanted = frozenset(places)

    def is_wanted(record: Record) -> bool:
        return record.offset in wanted

    return is_wanted


def _check(told: Mapping[str, Any], topic: str) -> None:
    """Raises Refused or _Unreadable if the process has found a problem."""
    if "needs_spark" in told:
        raise Refused(400, f"the condition is not for the console: {told['needs_spark']}. " + _elsewhere(topic))
    if "unreadable" in told:
        raise _Unreadable(told["unreadable"])
    if "error" in told:
        raise Refused(400, f"the condition: {told['error']}")


def _elsewhere(topic: str) -> str:
    return f'If it is right, ask Spark: barnabas sql "SELECT * FROM `{topic}` WHERE ..."'


class _Unreadable(Exception):
    """The process could not read the topic's files, or has failed; the text is for the operator."""


async def _why_unreadable(asker: Asker, topic: str) -> str:
    """The reason, for the visitor: a path and a name of another topic are not for everybody."""
    try:
        await _topic_id(asker, topic)
    except Refused as error:
        return str(error)
    return f"{topic} cannot be searched now: records were removed meanwhile, or a file is damaged. Search again"


async def _within(asker: Asker, topic: str, cursor: Cursor) -> Cursor:
    """The part of a visitor's cursor that the log has. Raises Refused."""
    partitions = {topic: sorted(cursor.at.keys() & cursor.until.keys())}
    first, end = await offsets(asker, partitions, EARLIEST), await offsets(asker, partitions, LATEST)
    return Cursor(
        {p: max(cursor.at[p], first[topic, p]) for p in partitions[topic]},
        {p: min(cursor.until[p], end[topic, p]) for p in partitions[topic]},
        cursor.back,
    )


async def _topic_id(asker: Asker, topic: str) -> str:
    """A topic's id, as its files have it. Raises Refused."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    (found,) = (await asker.ask(asked)).topics
    check(found.error_code, topic)
    return encode_uuid(found.topic_id)


async def _values(asker: Asker, topic: str) -> Values:
    """The form of a topic's values, which its columns come from. Raises Refused."""
    resource = DescribeConfigsResource(RESOURCE_TOPIC, topic, list(VALUES))
    (found,) = (await asker.ask(DescribeConfigsRequest(resources=[resource]))).results
    check(found.error_code, topic, "a condition needs DESCRIBE_CONFIGS on the topic, to know its columns")
    own = {each.name: each.value for each in found.configs if each.config_source == _OF_TOPIC}
    return Values.of({name: value for name, value in own.items() if value is not None})


class _Process:
    """One search in its process."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self._asked = asked
        self._rest = b""
        self._process: trio.Process | None = None
        self._deadline = trio.current_time() + SEARCH_SECONDS

    async def start(self) -> None:
        """Start it, and say what to find. Its standard input stays open: when that is closed, the process ends."""
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        try:
            self._process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "barnabas.streams.select", "where"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**environment, **_ONE_THREAD},
            )
            assert self._process.stdin is not None
            with trio.move_on_at(self._deadline):
                await self._process.stdin.send_all(msgspec.json.encode(self._asked) + b"\n")
        except (OSError, trio.BrokenResourceError) as error:
            raise _Unreadable(f"the process of the search cannot be started: {error}") from None

    async def line(self) -> dict[str, Any] | None:
        """The next line of its answer; None if it has reached a bound. Raises _Unreadable if it has failed."""
        if trio.current_time() >= self._deadline:  # also for a visitor who reads so slowly that lines are left
            return None
        while b"\n" not in self._rest:
            assert self._process is not None
            assert self._process.stdout is not None
            with trio.move_on_at(self._deadline) as scope:
                data = await self._process.stdout.receive_some(MOST_LINE)
                if not data:
                    self._check_status(await self._process.wait())
                    return None
                self._rest += data
            if scope.cancelled_caught:
                return None
            if len(self._rest) > MOST_LINE:
                raise _Unreadable("the process of the search says too much")
        line, _, self._rest = self._rest.partition(b"\n")
        told: dict[str, Any] = msgspec.json.decode(line)
        return told

    def _check_status(self, status: int) -> None:
        """Raises _Unreadable if it ended for another reason than the bound of its CPU."""
        if status != -signal.SIGXCPU:
            raise _Unreadable(f"the process of the search ended with status {status}")

    async def end(self) -> None:
        """End it, and wait until it is gone."""
        if self._process is None:
            return
        self._process.kill()
        await self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                await stream.aclose()
