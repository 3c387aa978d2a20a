"""The queue of a connection's answers: their order, which of them wait, and how many bytes may gather."""

from __future__ import annotations

import inspect
from typing import Any, cast

import pytest

import barnabas.broker.apis  # noqa: F401  registers the handlers
from barnabas.broker.net.answers import MAX_BACKLOG_BYTES, MAX_WAITING, Answers
from barnabas.broker.net.delayed_response import Coroutine, DelayedResponse
from barnabas.broker.registry import APIS, Context, Endpoint
from barnabas.broker.workers import Turns
from barnabas.wire.codegen import message_codec
from barnabas.wire.messages.heartbeat import HeartbeatResponse
from barnabas.wire.messages.metadata import MetadataResponse
from barnabas.wire.messages.offset_commit import OffsetCommitRequest


def endpoint_of(key: int, version: int) -> Endpoint:
    return Endpoint(APIS[key], version, APIS[key].handle)


HEARTBEAT = endpoint_of(12, 0)
NOBODY: Any = None


def context_of(correlation_id: int) -> Context:
    return Context(NOBODY, HEARTBEAT.api, 0, correlation_id, "client", 0.0)


def numbers(chunks: list[Any]) -> list[int]:
    """The correlation ids of answers to heartbeats in version 0, which have 10 bytes each."""
    data = b"".join(chunks)
    return [int.from_bytes(data[at + 4 : at + 8]) for at in range(0, len(data), 10)]


def test_what_is_ready_behind_an_open_answer_waits_for_it() -> None:
    answers, first, second = Answers(), DelayedResponse(), DelayedResponse()
    answers.add(HEARTBEAT.encode(HeartbeatResponse(), context_of(1)))
    answers.add_later(first, HEARTBEAT, context_of(2))
    answers.add(HEARTBEAT.encode(HeartbeatResponse(), context_of(3)))
    answers.add_later(second, HEARTBEAT, context_of(4))
    assert numbers(answers.take()) == [1]
    second.finish(HeartbeatResponse())
    assert answers.take() == []
    first.finish(HeartbeatResponse())
    assert numbers(answers.take()) == [2, 3, 4]
    assert not answers.queue


def test_an_answer_that_is_not_to_be_sent_lets_others_by() -> None:
    answers, silent = Answers(), DelayedResponse()
    answers.add_later(silent, HEARTBEAT, context_of(1))
    answers.add(HEARTBEAT.encode(HeartbeatResponse(), context_of(2)))
    silent.finish(None)
    assert numbers(answers.take()) == [2]


def test_what_a_socket_does_not_take_is_sent_first() -> None:
    answers = Answers()
    answers.add([b"one", b"two"])
    taken = answers.take()
    answers.add([b"three"])
    answers.sent(taken[1:])
    assert answers.unsent_bytes == 8
    assert answers.take() == [b"two", b"three"]
    answers.sent([])
    assert answers.unsent_bytes == 0


def test_there_is_an_end_to_what_may_gather() -> None:
    answers = Answers()
    answers.add([bytes(MAX_BACKLOG_BYTES)])
    assert not answers.is_full
    answers.add([b"x"])
    assert answers.is_full
    answers.sent([bytes(MAX_BACKLOG_BYTES // 2 + 1)])
    assert not answers.has_room, "it was full a moment ago"

    answers = Answers()
    waiting = [DelayedResponse() for _ in range(MAX_WAITING + 1)]
    for number, later in enumerate(waiting):
        answers.add_later(later, HEARTBEAT, context_of(number))
    assert answers.is_full
    for later in waiting[: MAX_WAITING // 2 + 1]:
        later.finish(HeartbeatResponse())
    answers.sent(answers.take() and [])
    assert answers.has_room


def test_a_request_waits_for_an_earlier_one_whose_effects_it_would_see() -> None:
    answers, commit = Answers(), DelayedResponse()
    metadata, fetch = endpoint_of(3, 9).api, endpoint_of(9, 1).api
    answers.add_later(commit, endpoint_of(OffsetCommitRequest.__wire__.key, 2), context_of(1))
    assert answers.holds(fetch)
    assert not answers.holds(metadata)
    commit.finish(None)
    assert not answers.holds(fetch)


def test_who_is_gone_is_told_nothing() -> None:
    told: list[str] = []

    class Kept(DelayedResponse):
        def abandon(self) -> None:
            told.append("abandoned")

    answers, later = Answers(), Kept()
    later.on_finish = lambda: told.append("finished")
    answers.add_later(later, HEARTBEAT, context_of(1))
    answers.abandon()
    later.finish(HeartbeatResponse())
    assert told == ["abandoned"]


async def test_one_coroutine_at_a_time_begins_when_its_turn_has_come() -> None:
    begun: list[int] = []
    started: list[Any] = []

    async def work(number: int) -> MetadataResponse:
        begun.append(number)
        return cast("MetadataResponse", HeartbeatResponse())

    answers = Answers()
    endpoint: Endpoint = HEARTBEAT
    for number in (1, 2):
        later = Coroutine(work(number), endpoint, context_of(number), started.append, Turns(1))
        answers.add_later(later, endpoint, context_of(number))
    assert answers.take() == []
    assert answers.take() == []
    assert len(started) == 1, "the second begins when the first answer has left"
    await started[0]()
    assert begun == [1]
    assert numbers(answers.take()) == [1]
    await started[1]()
    assert numbers(answers.take()) == [2]


@pytest.mark.parametrize("is_next", [False, True])
async def test_a_coroutine_that_never_ran_leaves_nothing_behind(is_next: bool) -> None:
    """Nor does a coroutine whose turn had come, if the client left before its task ran."""

    async def work() -> MetadataResponse:
        raise AssertionError("it must not begin")

    answers, coroutine = Answers(), work()
    later = Coroutine(coroutine, HEARTBEAT, context_of(1), lambda _: None, Turns(1))
    answers.add_later(later, HEARTBEAT, context_of(1))
    if is_next:
        assert answers.take() == []
    answers.abandon()
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


async def test_a_coroutine_whose_task_comes_too_late_leaves_nothing_behind() -> None:
    """The connection ended after the coroutine's turn came and before its task ran. The task may still run, or not."""

    async def work() -> MetadataResponse:
        raise AssertionError("it must not begin")

    for task_runs in (True, False):
        started: list[Any] = []
        answers, coroutine = Answers(), work()
        later = Coroutine(coroutine, HEARTBEAT, context_of(1), started.append, Turns(1))
        answers.add_later(later, HEARTBEAT, context_of(1))
        assert answers.take() == []
        answers.abandon()
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
        if task_runs:
            await started[0]()


def test_a_client_that_is_throttled_is_told_so_in_whichever_way_it_is_answered() -> None:
    def throttle_of(chunks: list[Any]) -> int:
        answer, _ = message_codec(HeartbeatResponse, 1).decode(b"".join(chunks), 8)
        return answer.throttle_time_ms

    endpoint, context, later = endpoint_of(12, 1), context_of(1), DelayedResponse()
    context.throttle_ms = 250
    assert throttle_of(endpoint.encode(HeartbeatResponse(), context)) == 250
    answers = Answers()
    answers.add_later(later, endpoint, context)
    later.finish(HeartbeatResponse())
    assert throttle_of(answers.take()) == 250
