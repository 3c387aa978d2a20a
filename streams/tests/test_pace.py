"""The size of ticks, computed from the times of earlier ticks."""

from __future__ import annotations

import pytest

from barnabas.streams.query.pace import FIRST_BYTES, MAX_BYTES, MAX_ROWS, MIN_BYTES, TICK_SECONDS, Pace


def backlog(pace: Pace, total: float, bytes_a_second: float, fixed: float = 0.1, cold: float = 1.5) -> list[float]:
    """The seconds of each tick until the end of a backlog."""
    ticks: list[float] = []
    while total > 0:
        size = min(total, pace.most(["q"]))
        work = size / bytes_a_second + fixed
        ticks.append(work + (0 if ticks else cold))
        pace.learn(["q"], int(size), ticks[-1], cold=len(ticks) == 1)
        total -= size
    return ticks


@pytest.mark.parametrize("bytes_a_second", [1e6, 10e6, 300e6, 1e12])
def test_ticks_become_as_long_as_they_should_and_no_longer(bytes_a_second: float) -> None:
    pace = Pace()
    ticks = backlog(pace, 40 * bytes_a_second, bytes_a_second)
    settled = ticks[4:-1]
    slowest = TICK_SECONDS * 1.1
    assert all(seconds <= slowest for seconds in settled)
    assert MIN_BYTES <= pace.most(["q"]) <= MAX_BYTES


def test_a_quick_query_is_at_its_pace_after_three_ticks() -> None:
    pace = Pace()
    for number in range(3):
        size = pace.most(["q"])
        pace.learn(["q"], size, size / 300e6 + (1.9 if number == 0 else 0.1), cold=number == 0)
    assert pace.most(["q"]) == MAX_BYTES


def test_a_cold_first_tick_does_not_slow_a_query_down_but_a_costly_one_does() -> None:
    pace = Pace()
    pace.learn(["q"], FIRST_BYTES, 2.2, cold=True)
    assert pace.most(["q"]) >= FIRST_BYTES
    pace.learn(["costly"], FIRST_BYTES, 180.0, cold=True)
    assert pace.most(["costly"]) == int(FIRST_BYTES * TICK_SECONDS / 178)
    pace.learn(["costly"], FIRST_BYTES, 1e6)
    pace.learn(["costly"], MIN_BYTES, 1e6)
    assert pace.most(["costly"]) == MIN_BYTES


def test_a_tick_that_was_given_up_counts_by_its_own_size() -> None:
    pace = Pace()
    pace.shrink(["q"], 400_000)
    assert pace.most(["q"]) == 400_000 // 64


def test_rows_of_a_batch_that_were_too_large_together_are_tried_again_later() -> None:
    pace = Pace()
    assert pace.rows(["q", "other"]) == MAX_ROWS
    pace.dense(["q"], 10)
    assert (pace.rows(["q", "other"]), pace.rows(["other"])) == (10, MAX_ROWS)
    for _ in range(40):
        pace.learn(["q"], 1, 0.1)
    assert pace.rows(["q"]) == 20
    for _ in range(1000):
        pace.learn(["q"], 1, 0.1)
    assert pace.rows(["q"]) == MAX_ROWS


def test_those_that_share_a_tick_take_what_the_slowest_can() -> None:
    pace = Pace()
    pace.learn(["slow"], FIRST_BYTES, 8.0)
    assert pace.most(["slow", "new"]) == FIRST_BYTES // 4
    assert pace.most(["new"]) == FIRST_BYTES


def test_a_small_tick_says_little() -> None:
    pace = Pace()
    pace.learn(["q"], 1000, 0.2)
    assert pace.most(["q"]) == FIRST_BYTES
