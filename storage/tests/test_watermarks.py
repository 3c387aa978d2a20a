"""How far readers may see, without a log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.segment import Segment
from barnabas.storage.watermarks import NONE_OPEN, Undecided, Watermarks


def test_the_last_stable_offset_follows_the_high_watermark_up_to_an_undecided_transaction() -> None:
    segment, undecided = Segment("", 0), Undecided()
    marks = Watermarks(10, segment, 100, undecided)
    assert (marks.high_watermark, marks.last_stable_offset) == (10, 10)
    undecided.begin(12)
    undecided.begin(13)
    seen = []
    for offset in (11, 12, 15):
        marks.advance(offset, segment, 10 * offset)
        seen.append((marks.high_watermark, marks.last_stable_offset, marks.position))
    assert seen == [(11, 11, 110), (12, 12, 120), (15, 12, 150)]
    undecided.end(12, 15)
    assert list(undecided.open()) == [13]
    marks.advance(15, segment, 150)
    assert marks.last_stable_offset == 12, "readers do not see the marker yet"
    marks.advance(16, segment, 160)
    assert marks.last_stable_offset == 13
    undecided.end(13, 16)
    marks.advance(17, segment, 170)
    assert (marks.last_stable_offset, undecided.first) == (17, NONE_OPEN)


def kept(undecided: Undecided) -> int:
    """The number of transactions remembered."""
    return len(undecided._open) + len(undecided._ended)


def test_what_is_decided_and_seen_is_forgotten_however_long_an_older_one_stays_open() -> None:
    segment, undecided = Segment("", 0), Undecided()
    marks = Watermarks(0, segment, 0, undecided)
    undecided.begin(0)
    for first in range(1, 2001, 2):
        undecided.begin(first)
        undecided.end(first, first + 1)
        assert kept(undecided) == 2
        marks.advance(first + 2, segment, 0)
        assert (kept(undecided), marks.last_stable_offset) == (1, 0)
    undecided.end(0, 2001)
    marks.advance(2002, segment, 0)
    assert (kept(undecided), marks.last_stable_offset) == (0, 2002)


def test_what_is_seen_earlier_and_begins_later_than_another_one_is_not_remembered() -> None:
    undecided = Undecided()
    Watermarks(0, Segment("", 0), 0, undecided)
    for first in range(1000):
        undecided.begin(first)
    for first in reversed(range(1000)):  # the markers are in the opposite order
        undecided.end(first, 2000 - first)
        assert (len(undecided._ended), undecided.first) == (1, 0)


def test_without_readers_nothing_that_is_decided_is_remembered() -> None:
    undecided = Undecided()
    for first in range(0, 2000, 2):
        undecided.begin(first)
        assert list(undecided.open()) == [first]
        undecided.end(first, first + 1)
        assert (kept(undecided), undecided.first) == (0, NONE_OPEN)


@given(st.lists(st.integers(0, 3), max_size=60))
def test_readers_never_see_a_transaction_before_its_marker(steps: list[int]) -> None:
    """Compared with a plain list of all transactions: 0 and 1 append, 2 ends one, 3 moves the high watermark."""
    segment, undecided = Segment("", 0), Undecided()
    marks = Watermarks(0, segment, 0, undecided)
    begun: list[int] = []
    markers: dict[int, int] = {}
    end = 0
    for number, step in enumerate(steps):
        if step < 2:
            if step:
                undecided.begin(end)
                begun.append(end)
            end += 1
        elif step == 2 and begun:
            first = begun.pop(number % len(begun))
            undecided.end(first, end)
            markers[first] = end
            end += 1
        else:
            marks.advance(end, segment, end)
        high = marks.high_watermark
        hidden = [*begun, *(first for first, marker in markers.items() if marker >= high)]
        assert marks.last_stable_offset == min([high, *hidden])
