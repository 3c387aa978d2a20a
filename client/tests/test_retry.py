"""When requests are repeated, and after which pause: on a clock that only sleeping moves."""

from __future__ import annotations

import pytest

from barnabas.client.errors import ClientError, LostError, RefusedError
from barnabas.client.retry import JITTER, Backoff, Timing, again, is_repeatable
from barnabas.client.tests.scripted import FakeTime
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_topics import CreateTopicsRequest
from barnabas.wire.messages.fetch import FetchRequest
from barnabas.wire.messages.offset_commit import OffsetCommitRequest
from barnabas.wire.messages.produce import ProduceRequest


def test_pauses_double_up_to_a_second_and_end_with_the_deadline() -> None:
    time = FakeTime()
    backoff = Backoff(5.0, time.timing)
    while backoff.pause():
        pass
    assert time.slept == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert time.now <= 5.0


@pytest.mark.parametrize(("chance", "first"), [(0.0, 0.1 * (1 - JITTER)), (1.0, 0.1 * (1 + JITTER))])
def test_a_pause_is_up_to_chance_within_bounds(chance: float, first: float) -> None:
    time = FakeTime()
    Backoff(5.0, Timing(lambda: time.now, time.sleep, lambda: chance)).pause()
    assert time.slept == [pytest.approx(first)]


def fails(*errors: Exception) -> tuple[list[int], object]:
    calls: list[int] = []

    def attempt() -> str:
        calls.append(1)
        if len(calls) <= len(errors):
            raise errors[len(calls) - 1]
        return "done"

    return calls, attempt


def test_what_may_pass_is_tried_until_it_has_passed() -> None:
    time = FakeTime()
    calls, attempt = fails(LostError("gone"), RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved"))
    assert again(attempt, 30.0, time.timing) == "done"  # type: ignore[arg-type]
    assert len(calls) == 3
    assert time.slept == [0.1, 0.2]


@pytest.mark.parametrize(
    "error", [ClientError("no"), RefusedError(ErrorCode.INVALID_CONFIG, "no"), RefusedError(9999, "no")]
)
def test_what_does_not_pass_is_not_tried_again(error: Exception) -> None:
    time = FakeTime()
    calls, attempt = fails(error, error)
    with pytest.raises(ClientError, match="no"):
        again(attempt, 30.0, time.timing)  # type: ignore[arg-type]
    assert len(calls) == 1
    assert not time.slept


def test_without_patience_it_is_tried_once() -> None:
    time = FakeTime()
    calls, attempt = fails(LostError("gone"))
    with pytest.raises(LostError):
        again(attempt, 0, time.timing)  # type: ignore[arg-type]
    assert len(calls) == 1


def test_an_interrupt_ends_the_wait_at_once() -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    calls, attempt = fails(LostError("gone"))
    with pytest.raises(KeyboardInterrupt):
        again(attempt, 30.0, Timing(lambda: 0.0, interrupted))  # type: ignore[arg-type]
    assert len(calls) == 1


def test_reading_may_be_repeated_and_writing_may_not() -> None:
    assert is_repeatable(FetchRequest())
    for writes in (ProduceRequest(), CreateTopicsRequest(), OffsetCommitRequest()):
        assert not is_repeatable(writes)
