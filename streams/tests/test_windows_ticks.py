"""PERIOD: the times of batches, and when one more comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.streams.windows.ticks import Ticks


class Clock:
    """A clock that a test moves, in seconds."""

    def __init__(self) -> None:
        self.now = 1_700_000_003.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("offset", "ends"), [(0, 1_700_000_010_000), (5000, 1_700_000_005_000)])
def test_one_more_tells_that_the_period_is_over_and_then_no_more(offset: int, ends: int) -> None:
    clock = Clock()
    ticks = Ticks(10_000, offset, clock)
    assert ticks.next(0, has_records=False) == 0, "nothing is open"
    at = ticks.next(0, has_records=True)
    assert at == 1_700_000_003_000
    clock.now = ends / 1000 - 0.001
    assert ticks.next(at, has_records=False) == at
    clock.now = ends / 1000
    over = ticks.next(at, has_records=False)
    assert over == ends
    assert ticks.next(at, has_records=False) == over, "whoever asks again gets it again"
    clock.now += 3600
    assert ticks.next(over, has_records=False) == over
    assert Ticks(10_000, offset, clock).next(over, has_records=False) > over, "after a start it is not known"


@given(st.lists(st.tuples(st.booleans(), st.integers(-5000, 20_000)), max_size=50))
def test_times_go_up_with_records_whatever_the_clock_does(steps: list[tuple[bool, int]]) -> None:
    clock = Clock()
    ticks, before = Ticks(10_000, 0, clock), 0
    for has_records, moved in steps:
        clock.now += moved / 1000
        following = ticks.next(before, has_records=has_records)
        assert following > before if has_records else following >= before
        before = following
