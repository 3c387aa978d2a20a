"""Finds the records of one topic that meet a condition, in its own process. The broker's console starts it.

The process reads the topic's files and nothing else: it has no connection to a broker, and so no login. The broker
says which topic, which columns it has, and which offsets may be read. So no name in a condition can lead to another
topic.

The request is one line of JSON on standard input, a `Request`. Standard input then stays open: the process ends when it
is closed, which the system does however the broker ends. The answer is JSON on standard output, one object a line:

    {"found": [[partition, offset], ...], "places": {"0": 4711}, "read": records}     after each window
    {"done": true}                                              everything was read; false: `limit` records were found
    {"error": "..."}, {"needs_spark": "why"}                    the condition cannot be used
    {"unreadable": "..."}                                       files are gone or damaged, for the operator

A window is a range of offsets in each partition. Reading begins at the ends, or at the beginnings. In a window, records
are sorted by time as far as the offsets of each partition allow. `places` are where to read on: before these offsets,
or from them.
"""

from __future__ import annotations

import heapq
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import msgspec
import pyarrow as pa

from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.plain import typed_columns
from barnabas.streams.select import syntax
from barnabas.streams.select.door import say
from barnabas.streams.select.errors import NeedsSpark
from barnabas.streams.select.plan import Planned, columns_of, plan
from barnabas.streams.select.scan import Scan
from barnabas.streams.select.syntax import Column, Item, Query
from barnabas.streams.wal import LogDir, WalError
from barnabas.wire.queries.plan import Values

#: The offsets of the first window, and the most of one, over all partitions.
FIRST_WINDOW, MOST_WINDOW = 4000, 100_000
#: The next window has twice as many offsets if one took less time than this, and half as many if it took much more.
WINDOW_SECONDS = 0.25
#: Other processes, above all the broker, come first.
_NICE = 10


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """What to find. `at` and `until` are offsets by partition; `back` means from `until` towards `at`."""

    data_dir: str
    topic: str
    topic_id: str
    values: Values
    condition: str
    at: dict[int, int]
    until: dict[int, int]
    back: bool
    limit: int
    #: The most bytes of the process (RLIMIT_AS), and the most seconds of CPU (RLIMIT_CPU).
    memory: int
    cpu_seconds: int


class Row(NamedTuple):
    """A record that meets the condition; the time is in microseconds."""

    time: int
    partition: int
    offset: int


class Found(NamedTuple):
    """The records of a window in order, and for each partition of it where to read on."""

    rows: list[Row]
    places: dict[int, int]


class Search:
    """One search, window by window. Raises NeedsSpark, and QueryError for a column that does not exist."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._log_dir = LogDir(request.data_dir)
        typed = typed_columns(request.values) or pa.schema([])
        self._scan = Scan(self._log_dir, request.values, typed, planned(request))
        #: Whether everything was read.
        self.is_done = False

    @property
    def read(self) -> int:
        """How many records have been read."""
        return self._scan.read

    def windows(self) -> Iterator[Found]:
        """The windows, until `limit` records are found or everything is read. Also raises WalError."""
        request, back = self._request, self._request.back
        left = request.limit
        asked = {(request.topic, p): (at, request.until[p]) for p, at in request.at.items() if p in request.until}
        open_ = {p: span for (_, p), span in self._scan.narrowed(asked).items()}
        width = FIRST_WINDOW
        while open_ and left > 0:
            began = time.monotonic()
            each = max(1, width // len(open_))
            window = {p: _part(*span, each, back=back) for p, span in open_.items()}
            found = taken({p: self._rows(p, *span) for p, span in window.items()}, window, left, back=back)
            left -= len(found.rows)
            for p, place in found.places.items():
                open_[p] = (open_[p][0], place) if back else (place, open_[p][1])
            open_ = {p: span for p, span in open_.items() if span[0] < span[1]}
            self.is_done = not open_
            yield found
            took = time.monotonic() - began
            if took < WINDOW_SECONDS:
                width = min(2 * width, MOST_WINDOW)
            elif took > 4 * WINDOW_SECONDS:
                width = max(1, width // 2)

    def _rows(self, partition: int, lo: int, hi: int) -> list[Row]:
        """The rows of a part of a partition, by offset."""
        key = self._request.topic, partition
        if self._log_dir.topic_id(key) != self._request.topic_id:
            raise WalError(f"{key[0]}-{key[1]} is gone, or belongs to another topic")
        found: list[Row] = []
        for batch in self._scan.between(key, lo, hi):
            times, offsets = batch.values("_timestamp"), batch.values("_offset")
            found += [Row(at or 0, partition, offset) for at, offset in zip(times, offsets, strict=True)]
        return found


def _part(lo: int, hi: int, width: int, *, back: bool) -> tuple[int, int]:
    return (max(lo, hi - width), hi) if back else (lo, min(hi, lo + width))


def planned(request: Request) -> Planned:
    """The plan of a condition over one topic. Raises NeedsSpark, QueryError."""
    items = tuple(Item(Column(name), None) for name in ("_timestamp", "_offset"))
    condition = syntax.parse_condition(request.condition)
    query = Query(request.topic, request.topic, False, items, condition, (), None, (), None, 0)
    return plan(query, columns_of(request.values))


def taken(rows: Mapping[int, list[Row]], window: Mapping[int, tuple[int, int]], limit: int, *, back: bool) -> Found:
    """The first rows of a window, at most `limit`: the next one is always the newest, or oldest, of the partitions'
    next ones. So what is left of a partition lies on one side of its place."""
    ways = [found[::-1] if back else found for found in rows.values()]
    kept = list(islice(heapq.merge(*ways, key=lambda row: row.time, reverse=back), limit))
    counts, places = dict.fromkeys(rows, 0), {}
    last: dict[int, int] = {}
    for row in kept:
        counts[row.partition] += 1
        last[row.partition] = row.offset
    for partition, (lo, hi) in window.items():
        if counts[partition] == len(rows[partition]):
            places[partition] = lo if back else hi
        elif partition in last:
            places[partition] = last[partition] if back else last[partition] + 1
        else:
            places[partition] = hi if back else lo
    return Found(kept, places)


def main() -> int:
    """Answer one request; the status is 1 if it is invalid."""
    try:
        request = msgspec.json.decode(sys.stdin.buffer.readline(), type=Request)
    except msgspec.DecodeError as error:
        say({"error": f"the request is not a JSON object as it should be: {error}"})
        return 1
    threading.Thread(target=_end_with_input, daemon=True).start()
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (request.cpu_seconds, request.cpu_seconds + 1))  # SIGXCPU comes first
    resource.setrlimit(resource.RLIMIT_AS, (request.memory, request.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        search = Search(request)
        for found in search.windows():
            rows = [(row.partition, row.offset) for row in found.rows]
            say({"found": rows, "places": found.places, "read": search.read})
        say({"done": search.is_done})
    except NeedsSpark as error:
        say({"needs_spark": str(error)})
    except QueryError as error:
        say({"error": str(error)})
    except WalError as error:
        say({"unreadable": str(error)})
    except MemoryError:
        say({"error": f"the search needs more memory than it may take, {request.memory >> 20} MiB"})
    except Exception as error:  # a line for the operator, who sees no traceback
        say({"unreadable": f"{type(error).__name__}: {error}"})
    return 0


def _end_with_input() -> None:
    while os.read(0, 1024):
        pass
    os._exit(1)


def run() -> int:
    """`main`, for a reader that may close the pipe."""
    try:
        return main()
    except BrokenPipeError:
        os._exit(1)
