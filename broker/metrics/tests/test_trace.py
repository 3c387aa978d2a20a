"""Requests as they arrive: what a watcher sees, and what this costs without watchers, or with a slow one."""

from __future__ import annotations

import urllib.request
from typing import Any

import msgspec
import pytest
import trio

from barnabas.broker.metrics import trace
from barnabas.broker.metrics.requests import RequestCounts
from barnabas.broker.metrics.tests.test_exposition import WATCHED, commit, describe_log_dirs
from barnabas.broker.metrics.trace import Filter, Line, Watcher
from barnabas.broker.tests.client import batch_of, frame_of, produce_request
from barnabas.broker.tests.conftest import Running, Start, until


def counts(running: Running) -> RequestCounts:
    assert running.node.metrics is not None
    return running.node.metrics.requests


class Seen:
    """What one watcher gets."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    async def watch(self, running: Running, **wanted: str) -> None:
        async for text in counts(running).traces.watch(Filter(**wanted)):
            self.lines += [msgspec.json.decode(line) for line in text.splitlines() if line]

    def of(self, api: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["api"] == api]


async def test_requests_and_answers(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client, trio.open_nursery() as nursery:
        seen, some = Seen(), Seen()
        nursery.start_soon(seen.watch, running)
        nursery.start_soon(lambda: some.watch(running, topic="b", api="produce"))
        await until(lambda: len(counts(running).traces.watchers) == 2)
        await client.create_topic("a")
        await client.create_topic("b")
        await client.produce("a", batch_of(b"x"))
        await client.produce("b", batch_of(b"y"))
        await client.produce("none", batch_of(b"x"))
        await client.fetch("a")
        await commit(client, "g", "a", 1)
        await client.send_bytes(frame_of(produce_request("b", batch_of(b"z"), acks=0), 9))
        await describe_log_dirs(running, client)
        await until(lambda: bool(seen.of("DescribeLogDirs")))  # its answer is encoded in a thread
        first, second, third, last = seen.of("Produce")
        assert (first["topics"], first["client"], first["principal"]) == (["a"], "test", "User:ANONYMOUS")
        assert first["ms"] > 0
        assert first["bytes"] > 0
        assert "errors" not in first
        assert third["errors"] == ["UNKNOWN_TOPIC_OR_PARTITION"]
        assert "ms" not in last  # acks=0
        assert seen.of("Fetch")[0]["topics"] == ["a"]
        assert seen.of("OffsetCommit")[0]["group"] == "g"
        assert [line["topics"] for line in some.lines] == [second["topics"], ["b"]] == [["b"], ["b"]]
        nursery.cancel_scope.cancel()


async def test_requests_of_the_console_are_told_and_counted_too(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client, trio.open_nursery() as nursery:
        await client.create_topic("a")
        await client.produce("a", batch_of(b"x"))
        seen = Seen()
        nursery.start_soon(seen.watch, running)
        await until(lambda: bool(counts(running).traces.watchers))
        assert running.node.http is not None
        url = f"{running.node.http.url.rstrip('/')}/api/topic/records?name=a"
        await trio.to_thread.run_sync(lambda: urllib.request.urlopen(url).read())
        await until(lambda: bool(seen.of("Fetch")))
        assert all(line["ms"] > 0 and line["client"] == "barnabas-console" for line in seen.lines)
        assert not counts(running).traces._open
        fetches = next(each for each in counts(running).by_api.values() if each.name == "Fetch")
        assert sum(fetches.all_answered().seconds.counts) == sum(each.requests for each in fetches.endpoints) > 0
        nursery.cancel_scope.cancel()


async def test_when_the_last_one_leaves_nothing_is_noted(start: Start) -> None:
    async with start(more=WATCHED) as running, await running.client() as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Seen().watch, running)
            await until(lambda: bool(counts(running).traces.watchers))
            nursery.cancel_scope.cancel()
        assert not counts(running).traces.watchers
        await client.create_topic("a")
        assert not counts(running).traces._open


async def test_who_is_slow_loses_lines_and_is_told() -> None:
    watcher = Watcher(Filter())
    for _ in range(trace.MOST_WAITING + 7):
        watcher.tell(Line(0, "Fetch", 12, "c", "h:1", "User:a"))
    lines = await watcher.lines().__anext__()
    found = [msgspec.json.decode(line) for line in lines.splitlines()]
    assert len(found) == trace.MOST_WAITING
    assert found[-1]["lost"] == 7


async def test_requests_that_never_end_are_bounded(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_OPEN", 3)
    async with start(more=WATCHED) as running, trio.open_nursery() as nursery:
        nursery.start_soon(Seen().watch, running)
        await until(lambda: bool(counts(running).traces.watchers))
        for _ in range(6):
            client = await running.client()
            await client.create_topic(f"t{_}")
            await client.send_bytes(b"")
            await client.stream.aclose()
        assert len(counts(running).traces._open) <= 3
        nursery.cancel_scope.cancel()
