"""When MAX_DELAY sets a mark: once for open windows, and then no more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.streams.windows.quiet import Quiet
from barnabas.wire.streams.clauses import parse_stream

OF_TIME = "INTERVAL(10s)", "SESSION(10s)"
OF_RECORDS = "STATE_WINDOW(a)", "EVENT_WINDOW(START WITH a END WITH b)", "COUNT_WINDOW(3)"
WATERMARK = 1_000_000


def quiet(window: str, delay: str = "MAX_DELAY 3s") -> Quiet:
    clauses = parse_stream(f"WATERMARK 5s {delay} AS SELECT count(*) FROM s {window}")
    return Quiet(clauses, [clauses.window], 100.0)


def marks(of: Quiet, state_rows: int, at: float, watermark: int = WATERMARK, last: int = 0) -> list[int]:
    """The marks of an hour without records; each one moves the watermark."""
    found = []
    for second in range(3600):
        mark = of.mark(at + second, watermark, last, state_rows)
        if mark is not None:
            found.append(mark)
            last, watermark = mark, mark - 5000
    return found


@pytest.mark.parametrize("window", OF_TIME)
def test_a_mark_lies_behind_all_that_can_be_open(window: str) -> None:
    assert marks(quiet(window), 0, 100.0) == [WATERMARK + 5000 + 10_000 + 5000]


@pytest.mark.parametrize("window", OF_RECORDS)
def test_windows_of_records_stay_open_and_get_one_mark(window: str) -> None:
    """Their state stays; with a mark for each MAX_DELAY, the watermark would run away."""
    of = quiet(window)
    first = WATERMARK + 5000 + 5000
    assert marks(of, 7, 100.0) == [first]
    of.came(1, 4000.0)  # together with the mark, so that it may wait
    assert marks(of, 7, 4000.0, first - 5000, first) == [first + 5000]
    of.came(0, 8000.0)  # the mark
    assert marks(of, 7, 8000.0, first, first + 5000) == []


def test_the_state_of_fill_stays_and_gets_one_mark() -> None:
    assert marks(quiet("INTERVAL(10s) FILL(PREV)"), 7, 100.0) == [WATERMARK + 5000 + 10_000 + 5000]


@pytest.mark.parametrize(
    "ask", [lambda of: of.mark(102.9, WATERMARK, 0, 1), lambda of: of.mark(200.0, 0, 0, 1)], ids=["soon", "nothing"]
)
def test_there_is_no_mark(ask: Callable[[Quiet], int | None]) -> None:
    assert ask(quiet("INTERVAL(10s)")) is None


def test_without_the_option_there_is_none() -> None:
    assert marks(quiet("INTERVAL(10s)", ""), 5, 100.0) == []
