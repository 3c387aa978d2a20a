"""Histograms, quantiles, and the age of the first unread record of a partition."""

from __future__ import annotations

import math
from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.metrics.lag import MOST_NOTES, Ends
from barnabas.broker.metrics.measures import SECONDS, Histogram, quantile


@given(st.lists(st.floats(0, 100)))
def test_a_histogram_has_every_value_in_one_bucket(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    buckets = histogram.buckets()
    assert buckets[-1] == ("+Inf", len(values))
    for bound, count in buckets[:-1]:
        assert count == sum(value <= float(bound) for value in values)
    assert math.isclose(histogram.total, sum(values), abs_tol=1e-9)


@given(st.lists(st.floats(0, 29), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_as_near_as_its_bucket_is_wide(values: list[float], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    exact = sorted(values)[max(0, math.ceil(len(values) * share - 1e-9) - 1)]
    edges = [0.0, *SECONDS]
    above = min(bound for bound in SECONDS if exact <= bound)
    below = edges[edges.index(above) - 1]
    assert below <= quantile(SECONDS, histogram.counts, share) <= above


def test_no_values_have_no_quantile() -> None:
    assert math.isnan(quantile(SECONDS, Histogram().counts, 0.5))


def test_two_histograms_added_are_one_of_all_values() -> None:
    one, other, both = Histogram(), Histogram(), Histogram()
    for value in (0.001, 0.2, 99):
        one.observe(value)
        both.observe(value)
    other.observe(0.003)
    both.observe(0.003)
    one.add(other)
    assert (one.counts, one.total) == (both.counts, both.total)


@given(st.lists(st.tuples(st.floats(0.1, 100), st.integers(0, 1000)), min_size=1, max_size=300), st.data())
def test_the_age_of_a_record_lies_between_the_notes_around_it(
    steps: list[tuple[float, int]], data: st.DataObject
) -> None:
    """Between two notes, a steady rate is assumed. The age is never below or above what is possible."""
    ends, written = Ends(), []  # when the log had how many records
    now, end = 0.0, 0
    for seconds, records in steps:
        now, end = now + seconds, end + records
        ends.note(now, end)
        written.append((now, end))
        assert len(ends) <= MOST_NOTES
    offset = data.draw(st.integers(0, end + 5))
    age = ends.age(now, offset)
    if offset >= end:
        assert age == 0
        return
    at = bisect_right([each[1] for each in written], offset)
    by = written[at][0]  # it was written at the latest then
    assert age <= now - written[0][0] + 1e-9
    if len(steps) < MOST_NOTES // 2 and at > 0:
        idle = [when for when, last in written[:at] if last <= offset]
        assert now - by - 1e-6 <= age <= now - idle[0] + 1e-6


def test_a_partition_that_was_made_anew_is_known_from_then_on() -> None:
    ends = Ends()
    ends.note(0.0, 100)
    ends.note(10.0, 200)
    ends.note(20.0, 5)
    assert len(ends) == 1
    assert ends.age(25.0, 5) == 0
    assert ends.age(25.0, 2) == 5.0


def test_a_partition_at_rest_takes_two_notes() -> None:
    ends = Ends()
    ends.note(0.0, 0)
    for second in range(1, 1000):
        ends.note(float(second), 10)
    assert len(ends) == 3
    assert 998.0 <= ends.age(999.0, 9) <= 999.0


def test_who_is_behind_the_oldest_note_is_behind_by_its_age_at_least() -> None:
    ends = Ends()
    ends.note(5.0, 1000)
    assert ends.age(65.0, 10) == 60.0
