"""Requests with their answers as they occur, for watchers: `barnabas trace`.

A request is noted when its handler is called. Watchers get it with its answer, or at once if it gets none. At most
`MOST_WAITING` lines wait for a watcher that reads slowly; further lines are only counted, and no request waits. Without
watchers, nothing is noted.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from time import perf_counter, time
from typing import Any

import msgspec
import trio

from barnabas.broker.registry import Context
from barnabas.wire.errors import ErrorCode
from barnabas.wire.types import Message

MOST_WATCHERS = 8
MOST_WAITING = 1000
#: The most requests that are noted without an answer. If there are more, the oldest are dropped.
MOST_OPEN = 10_000
MOST_NAMES = 10
_NAME_CHARS = 300
# How often a watcher without news gets an empty line, which shows whether its connection still works.
QUIET_SECONDS = 10.0


class Line(msgspec.Struct, omit_defaults=True):
    """A request and its answer. Times are in ms: `at` since 1970, `ms` from the request's arrival to its answer.
    `bytes` is the answer's size. Both are left out if there is no answer."""

    at: int
    api: str
    version: int
    client: str
    address: str
    principal: str
    topics: list[str] = []
    group: str = ""
    transaction: str = ""
    ms: float | None = None
    bytes: int | None = None
    errors: list[str] = []
    lost: int = 0


class Filter(msgspec.Struct):
    """The requests that a watcher wants to see; an empty field means all."""

    topic: str = ""
    client: str = ""
    principal: str = ""
    api: str = ""

    def takes(self, line: Line) -> bool:
        return (
            (not self.topic or self.topic in line.topics)
            and self.client in ("", line.client)
            and self.principal in ("", line.principal)
            and (not self.api or self.api.lower() == line.api.lower())
        )


class Watcher:
    """A client that watches. `lines` gives the wanted lines, as JSON."""

    def __init__(self, wanted: Filter) -> None:
        self._wanted = wanted
        self._waiting: deque[Line] = deque()
        self._lost = 0
        self._has_some = trio.Event()

    def tell(self, line: Line) -> None:
        """Add a line, if it is wanted and there is room."""
        if not self._wanted.takes(line):
            return
        if len(self._waiting) >= MOST_WAITING:
            self._lost += 1
            return
        self._waiting.append(line)
        self._has_some.set()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """The lines as they arrive, some at a time, without end."""
        while True:
            if not self._waiting:
                self._has_some = trio.Event()
                with trio.move_on_after(QUIET_SECONDS):
                    await self._has_some.wait()
            lines, self._waiting = self._waiting, deque()
            if lines:
                lines[-1].lost, self._lost = self._lost, 0
            yield b"".join(msgspec.json.encode(line) + b"\n" for line in lines) or b"\n"


class Traces:
    """All watchers of a broker. Must be made in the thread of the event loop."""

    def __init__(self) -> None:
        self.watchers: dict[Watcher, None] = {}
        self._open: OrderedDict[int, tuple[Context, Line]] = OrderedDict()
        self._loop = threading.get_ident()
        self._token: trio.lowlevel.TrioToken | None = None

    async def watch(self, wanted: Filter) -> AsyncGenerator[bytes, None]:
        """The lines for a new watcher, until it leaves."""
        watcher = Watcher(wanted)
        self._token = trio.lowlevel.current_trio_token()
        self.watchers[watcher] = None
        try:
            async for lines in watcher.lines():
                yield lines
        finally:
            del self.watchers[watcher]
            if not self.watchers:
                self._open.clear()

    @property
    def is_full(self) -> bool:
        """Whether there are as many watchers as are allowed."""
        return len(self.watchers) >= MOST_WATCHERS

    def began(self, context: Context, request: Any) -> None:
        """Note a request just before its handler is called."""
        connection = context.connection
        line = Line(
            at=int(time() * 1000),
            api=context.api.name,
            version=context.version,
            client=(context.client_id or "")[:_NAME_CHARS],
            address=f"{connection.host}:{connection.port}",
            principal=str(connection.principal)[:_NAME_CHARS],
            topics=_topics(request),
            group=str(getattr(request, "group_id", "") or "")[:_NAME_CHARS],
            transaction=str(getattr(request, "transactional_id", "") or "")[:_NAME_CHARS],
        )
        self._open[id(context)] = (context, line)
        if len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)

    def unanswered(self, context: Context) -> None:
        """Note that the request gets no answer."""
        _, line = self._open.pop(id(context), (None, None))
        if line is not None:
            self._tell(line)

    def answered(self, context: Context, response: Message, size: int) -> None:
        """Note that the answer is encoded. May be called in a thread."""
        seconds = perf_counter() - context.received_at
        if threading.get_ident() == self._loop:
            self._answered(context, response, size, seconds)
        elif self._token is not None:
            self._token.run_sync_soon(self._answered, context, response, size, seconds)

    def _answered(self, context: Context, response: Message, size: int, seconds: float) -> None:
        _, line = self._open.pop(id(context), (None, None))
        if line is not None:
            line.ms, line.bytes, line.errors = round(seconds * 1000, 3), size, _errors(response)
            self._tell(line)

    def _tell(self, line: Line) -> None:
        for watcher in self.watchers:
            watcher.tell(msgspec.structs.replace(line))


def _topics(request: Any) -> list[str]:
    """The names of the topics that a request is about, or their ids."""
    found: dict[str, None] = {}
    for field in ("topics", "topic_data", "resources"):
        for each in getattr(request, field, None) or ():
            name = each if isinstance(each, str) else _name(each)
            if name:
                found[name[:_NAME_CHARS]] = None
            if len(found) == MOST_NAMES:
                return list(found)
    return list(found)


def _name(each: Any) -> str:
    for field in ("name", "topic", "resource_name"):
        name = getattr(each, field, None)
        if isinstance(name, str) and name:
            return name
    topic_id = getattr(each, "topic_id", None)
    return topic_id.hex() if isinstance(topic_id, bytes) and any(topic_id) else ""


def _errors(response: Any) -> list[str]:
    """The names of the errors in an answer, without duplicates, as far as its partitions have error codes."""
    codes: dict[int, None] = {}
    if code := getattr(response, "error_code", 0):
        codes[code] = None
    for topic in getattr(response, "responses", None) or ():
        for part in getattr(topic, "partition_responses", None) or getattr(topic, "partitions", None) or ():
            if code := getattr(part, "error_code", 0):
                codes[code] = None
    return [_error(code) for code in list(codes)[:MOST_NAMES]]


def _error(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
