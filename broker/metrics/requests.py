"""Requests as they are counted: by API, version and error, with how long they took and what was sent.

An endpoint that counts stands where the usual one does (`broker.registry`), so that a broker which is not watched pays
nothing. A request counts when its handler is called, its time when its answer is encoded: from the read that brought it
on. That leaves out how long the answer waits for a client that does not read.

Large answers are encoded in a thread, at most one at a time. It adds to numbers of its own, as two threads that add to
one lose counts.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from barnabas.broker.metrics.measures import Histogram
from barnabas.broker.registry import Answer, Api, Context, Endpoint
from barnabas.wire.messages.fetch import FetchResponse
from barnabas.wire.messages.produce import ProduceResponse
from barnabas.wire.types import Message, SizedChunk


class Answered:
    """What is counted when answers of one API are encoded."""

    __slots__ = ("bytes", "errors", "fetched", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram()
        self.bytes = 0
        #: Answers, or partitions in them, by error code; not those without one.
        self.errors: Counter[int] = Counter()
        #: Bytes of log data by the topic's name, or its id where the answer has that.
        self.fetched: Counter[str | bytes] = Counter()

    def add(self, other: Answered) -> None:
        self.seconds.add(other.seconds)
        self.bytes += other.bytes
        self.errors.update(other.errors)
        self.fetched.update(other.fetched)


class ApiCounts:
    """Of one API."""

    __slots__ = ("answered", "answered_in_thread", "name", "requests")

    def __init__(self, name: str) -> None:
        self.name = name
        #: By version.
        self.requests: Counter[int] = Counter()
        self.answered, self.answered_in_thread = Answered(), Answered()

    def all_answered(self) -> Answered:
        """What the event loop and the thread have counted."""
        both = Answered()
        both.add(self.answered)
        both.add(self.answered_in_thread)
        return both


class RequestCounts:
    """Of all APIs. Made in the thread of the event loop."""

    def __init__(self) -> None:
        self.by_api: dict[int, ApiCounts] = {}
        self.loop = threading.get_ident()

    def endpoint(
        self, api: Api, version: int, handle: Callable[[Context, Any], Answer], *, reads: bool = True
    ) -> Endpoint:
        """An endpoint that counts."""
        counts = self.by_api.get(api.key)
        if counts is None:
            counts = self.by_api[api.key] = ApiCounts(api.name)
        return CountingEndpoint(api, version, handle, counts, self.loop, reads=reads)


class CountingEndpoint(Endpoint):
    """One API in one version, whose requests and answers are counted."""

    __slots__ = ("_counts", "_loop")

    def __init__(
        self,
        api: Api,
        version: int,
        handle: Callable[[Context, Any], Answer],
        counts: ApiCounts,
        loop: int,
        *,
        reads: bool = True,
    ) -> None:
        requests = counts.requests

        def counted(context: Context, request: Any) -> Answer:
            requests[version] += 1
            return handle(context, request)

        super().__init__(api, version, counted, reads=reads)
        self._counts, self._loop = counts, loop

    def encode(self, response: Message, context: Context) -> list[SizedChunk]:
        chunks = super().encode(response, context)
        counts = self._counts
        answered = counts.answered if threading.get_ident() == self._loop else counts.answered_in_thread
        answered.seconds.observe(time.perf_counter() - context.received_at)
        for chunk in chunks:
            answered.bytes += len(chunk)
        if isinstance(response, FetchResponse):
            _look_at_fetch(response, answered)
        elif isinstance(response, ProduceResponse):
            _look_at_produce(response, answered)
        code = getattr(response, "error_code", 0)
        if code:
            answered.errors[code] += 1
        return chunks


def _look_at_fetch(response: FetchResponse, answered: Answered) -> None:
    for topic in response.responses:
        size = 0
        for part in topic.partitions:
            if part.records:
                size += len(part.records)
            if part.error_code:
                answered.errors[part.error_code] += 1
        if size:
            answered.fetched[topic.topic or topic.topic_id] += size


def _look_at_produce(response: ProduceResponse, answered: Answered) -> None:
    for topic in response.responses:
        for part in topic.partition_responses:
            if part.error_code:
                answered.errors[part.error_code] += 1
