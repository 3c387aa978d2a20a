"""Counts of requests: by API, version and error, with their durations and the bytes sent.

A counting endpoint replaces the usual one (`broker.registry`), so that a broker without a reader of metrics pays
nothing. A request is counted when its handler is called. Its duration is from the read that brought it until its answer
is encoded, without the time that the answer waits for a client that does not read.

Large answers are encoded in a thread, at most one at a time. The thread has counters of its own, because two threads
that add to the same counter lose counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from threading import get_ident
from time import perf_counter
from typing import Any

from barnabas.broker.metrics.measures import Histogram
from barnabas.broker.metrics.trace import Traces
from barnabas.broker.registry import Answer, Api, Context, Endpoint
from barnabas.wire.messages.fetch import FetchResponse
from barnabas.wire.messages.produce import ProduceResponse
from barnabas.wire.types import Message, SizedChunk


class Answered:
    """The counts made when answers of one API are encoded."""

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
    """The counts of one API."""

    __slots__ = ("answered", "answered_in_thread", "endpoints", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.endpoints: list[CountingEndpoint] = []
        self.answered, self.answered_in_thread = Answered(), Answered()

    @property
    def requests(self) -> Counter[int]:
        """The number of requests, by version."""
        found: Counter[int] = Counter()
        for endpoint in self.endpoints:
            found[endpoint.version] += endpoint.requests
        return found

    def all_answered(self) -> Answered:
        """The counts of the event loop and the thread together."""
        both = Answered()
        both.add(self.answered)
        both.add(self.answered_in_thread)
        return both


class RequestCounts:
    """The counts of all APIs. Must be made in the thread of the event loop."""

    def __init__(self) -> None:
        self.by_api: dict[int, ApiCounts] = {}
        self._loop = get_ident()
        #: The watchers of requests.
        self.traces = Traces()

    def endpoint(
        self, api: Api, version: int, handle: Callable[[Context, Any], Answer], *, reads: bool = True
    ) -> Endpoint:
        """An endpoint that counts."""
        counts = self.by_api.get(api.key)
        if counts is None:
            counts = self.by_api[api.key] = ApiCounts(api.name)
        endpoint = CountingEndpoint(api, version, handle, counts, self._loop, self.traces, reads=reads)
        counts.endpoints.append(endpoint)
        return endpoint


class CountingEndpoint(Endpoint):
    """One API in one version, whose requests and answers are counted."""

    __slots__ = ("_bounds", "_counts", "_has_code", "_look", "_loop", "_traces", "requests")

    def __init__(
        self,
        api: Api,
        version: int,
        handle: Callable[[Context, Any], Answer],
        counts: ApiCounts,
        loop: int,
        traces: Traces,
        *,
        reads: bool = True,
    ) -> None:
        def counted(context: Context, request: Any) -> Answer:
            self.requests += 1
            if traces.watchers:
                traces.began(context, request)
                answer = handle(context, request)
                if answer is None or getattr(request, "acks", None) == 0:
                    traces.unanswered(context)
                return answer
            return handle(context, request)

        super().__init__(api, version, counted, reads=reads)
        #: Requests that were passed to the handler.
        self.requests = 0
        self._counts, self._loop, self._traces = counts, loop, traces
        self._bounds = counts.answered.seconds.bounds
        self._has_code = "error_code" in api.response.__struct_fields__
        self._look: Callable[[Any, Answered], None] | None = LOOKS.get(api.key)

    def encode(self, response: Message, context: Context) -> list[SizedChunk]:
        chunks = Endpoint.encode(self, response, context)
        self._count(response, context, len(chunks[0]) if len(chunks) == 1 else sum(map(len, chunks)))
        return chunks

    def given(self, response: Message, context: Context) -> None:
        self._count(response, context, 0)

    def _count(self, response: Message, context: Context, size: int) -> None:
        # This runs for every answer, so each saved call is worth its lines.
        counts = self._counts
        answered = counts.answered if get_ident() == self._loop else counts.answered_in_thread
        seconds = perf_counter() - context.received_at
        histogram = answered.seconds
        histogram.counts[bisect_left(self._bounds, seconds)] += 1
        histogram.total += seconds
        answered.bytes += size
        if self._look is not None:
            self._look(response, answered)
        if self._has_code and response.error_code:  # type: ignore[attr-defined]
            answered.errors[response.error_code] += 1  # type: ignore[attr-defined]
        if self._traces.watchers:
            self._traces.answered(context, response, size)


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


#: By API key, what is counted of the partitions in an answer.
LOOKS: dict[int, Callable[[Any, Answered], None]] = {
    ProduceResponse.__wire__.key: _look_at_produce,
    FetchResponse.__wire__.key: _look_at_fetch,
}
