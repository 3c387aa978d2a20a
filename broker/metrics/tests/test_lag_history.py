"""The total lag of groups in the last hour: what is kept, and its bounds."""

from __future__ import annotations

import sys

import pytest

from barnabas.broker.metrics.lag_history import MOST_GROUPS, MOST_NOTES, MOST_TOPICS, LagHistory

T = frozenset({"t"})


def test_an_hour_is_kept() -> None:
    history = LagHistory()
    for minute in range(2 * MOST_NOTES):
        history.note(minute, "g", 10 * minute, T)
        history.end(minute)
    found = history.of("g")
    assert found is not None
    assert found.at.tolist() == [*range(MOST_NOTES, 2 * MOST_NOTES)]
    assert found.records.tolist() == [10 * minute for minute in range(MOST_NOTES, 2 * MOST_NOTES)]
    assert found.topics == T


def test_a_group_without_offsets_is_forgotten() -> None:
    history = LagHistory()
    history.note(1, "g", 5, T)
    history.note(1, "other", 5, T)
    history.end(1)
    history.note(2, "other", 6, T)
    history.end(2)
    assert history.of("g") is None
    assert len(history) == 1


def test_groups_beyond_the_bound_are_left_out_until_there_is_room() -> None:
    history = LagHistory()
    for number in range(MOST_GROUPS + 5):
        history.note(1, f"g{number}", 1, T)
    history.end(1)
    assert len(history) == MOST_GROUPS
    assert history.is_full
    assert history.of(f"g{MOST_GROUPS}") is None
    for minute in (2, 3):  # the first group is gone, and the next minute has room for another one
        for number in range(MOST_GROUPS, 0, -1):
            history.note(minute, f"g{number}", 1, T)
        history.end(minute)
    assert len(history) == MOST_GROUPS
    assert history.of(f"g{MOST_GROUPS}") is not None
    assert not history.is_full


@pytest.mark.skipif(sys.implementation.name == "pypy", reason="PyPy does not tell the size of an object")
def test_the_memory_of_a_group_is_bounded() -> None:
    history = LagHistory()
    for minute in range(10 * MOST_NOTES):
        history.note(minute, "g", 2**62, frozenset({f"topic-{minute}"}))
    found = history.of("g")
    assert found is not None
    assert found.topics is None  # more than MOST_TOPICS
    assert 10 * MOST_NOTES > MOST_TOPICS
    assert sys.getsizeof(found.at) + sys.getsizeof(found.records) < 2500
