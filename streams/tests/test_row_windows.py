"""Windows that records open and close: they do not depend on how the records are divided into batches."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.streams.windows.row_windows import ENDS, STARTS, Of, Row, advance
from barnabas.wire.streams.windows import CountWindow, EventWindow, Least, RowWindow, StateWindow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOWS: list[RowWindow] = [
    StateWindow(),
    EventWindow(),
    StateWindow(Least(3, 2)),
    EventWindow(Least(4, 3, both=False)),
    CountWindow(1, 1),
    CountWindow(4, 4),
    CountWindow(5, 2),
    CountWindow(3, 1),
]


def plain(window: RowWindow, rows: list[Row]) -> list[list[Row]]:
    """A plain evaluation over all records in order, following the definitions."""
    found = complete(window, rows)
    if isinstance(window, CountWindow):
        return found
    long = [rows[-1].at - rows[0].at >= window.least.duration_ms * 1000 for rows in found]
    many = [len(rows) >= window.least.count for rows in found]
    wanted = all if window.least.both else any
    return [rows for rows, *those in zip(found, long, many, strict=True) if wanted(those)]


def complete(window: RowWindow, rows: list[Row]) -> list[list[Row]]:
    """All windows, however short they are."""
    found: list[list[Row]] = []
    if isinstance(window, CountWindow):
        starts = range(0, len(rows) - window.count + 1, window.sliding)
        return [rows[start : start + window.count] for start in starts]
    if isinstance(window, StateWindow):
        rows = [row for row in rows if row.mark is not None]
        changes = [n for n in range(1, len(rows)) if rows[n].mark != rows[n - 1].mark]
        return [rows[lo:hi] for lo, hi in zip([0, *changes], changes, strict=False)]
    at = 0
    while (first := next((n for n in range(at, len(rows)) if STARTS in (rows[n].mark or "")), None)) is not None:
        last = next((n for n in range(first, len(rows)) if ENDS in (rows[n].mark or "")), None)
        if last is None:
            break
        found.append(rows[first : last + 1])
        at = last + 1
    return found


@given(
    st.sampled_from(WINDOWS),
    st.lists(
        st.tuples(
            st.integers(0, 30).map(lambda ms: 1000 * ms), st.sampled_from([None, "", STARTS, ENDS, STARTS + ENDS])
        ),
        max_size=60,
    ),
    st.randoms(use_true_random=False),
    st.integers(0, 8).map(lambda ms: 1000 * ms),
)
def test_batches_and_the_order_in_which_records_come_change_nothing(
    window: RowWindow, made: list[tuple[int, str | None]], moments: random.Random, delay: int
) -> None:
    """This holds as long as the records come before the watermark."""
    rows = [Row(at, n % 2, n, mark, str(n)) for n, (at, mark) in enumerate(made)]
    rows.sort(key=lambda row: (row.at + moments.randint(0, delay), row.offset))  # out of order by this much
    of, found, watermark = Of(), list[list[Row]](), -1
    while rows:
        count = moments.randint(1, 10)
        batch, rows = rows[:count], rows[count:]
        found += advance(window, of, batch, watermark)
        watermark = max(watermark, max(row.at for row in batch) - delay - 1)
        for window_rows in found:
            assert all(row.at <= watermark for row in window_rows)
    found += advance(window, of, [], 10**9)
    order = sorted(
        (Row(at, n % 2, n, mark, str(n)) for n, (at, mark) in enumerate(made)),
        key=lambda row: (row.at, row.partition, row.offset),
    )
    assert found == plain(window, order)
    assert not of.waiting


def test_what_is_kept_is_what_is_open() -> None:
    rows = [Row(n, 0, n, mark, "") for n, mark in enumerate(["", STARTS, "", ENDS, ENDS, "", STARTS])]
    of = Of()
    assert [len(found) for found in advance(EventWindow(), of, rows, 5)] == [3]
    assert (len(of), of.waiting, of.open) == (1, rows[6:], [])
    of = Of()
    assert [len(found) for found in advance(CountWindow(3, 3), of, rows, 100)] == [3, 3]
    assert of.open == rows[6:]
    of = Of()
    list(advance(StateWindow(), of, rows[:2], 100))
    assert of.open == rows[1:2]


# --- with Spark -------------------------------------------------------------------------------------------------------


def naive(
    readings: list[Any], mark: Callable[[Any], str | None], window: RowWindow
) -> list[tuple[tuple[Any, int, int], list[Any]]]:
    """The windows: key, first and last time, and readings. Two may have the same times."""
    by_key: dict[Any, list[Any]] = defaultdict(list)
    for reading in sorted(readings, key=lambda r: (r.ts, r.place)):
        by_key[reading.device].append(reading)
    found = []
    for key, mine in by_key.items():
        rows = [Row(r.ts, r.place[0], r.place[1], mark(r), str(n)) for n, r in enumerate(mine)]
        for rows_of in plain(window, rows):
            some = [mine[int(row.inputs)] for row in rows_of]
            found.append(((key, some[0].ts, some[-1].ts), some))
    return found


def events(reading: Any) -> str:
    temp = reading.temp
    return (STARTS if temp is not None and temp > 5 else "") + (ENDS if temp is not None and temp < 1 else "")


def third(reading: Any) -> str | None:
    return None if reading.n % 7 == 0 else str(reading.n // 3 % 3)


CASES: dict[str, tuple[str, Callable[[Any], str | None], RowWindow]] = {
    "state": ("STATE_WINDOW(CASE WHEN n % 7 <> 0 THEN n div 3 % 3 END)", third, StateWindow()),
    "event": (
        "EVENT_WINDOW(START WITH temp > 5 END WITH temp < 1) TRUE_FOR(COUNT 2)",
        events,
        EventWindow(Least(0, 2)),
    ),
    "count": ("COUNT_WINDOW(7, 3)", lambda _: None, CountWindow(7, 3)),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "event")) for name in CASES])
def test_results_are_those_of_a_plain_evaluation(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """In several batches, out of order, with equal times, nulls, and null keys."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
    from barnabas.storage.config import LogConfig
    from barnabas.streams.tests import test_windows_results as results
    from barnabas.streams.tests.support import Logs
    from barnabas.streams.tests.windows_support import Run, in_order
    from barnabas.streams.windows.session import streams_session

    session = streams_session(spark)
    clause, mark, window = CASES[name]
    logs = Logs(tmp_path / "data", LogConfig(index_interval_bytes=500))
    readings = results.write(logs, 5, 240, sorted_=True)
    query = (
        f"PARALLELISM 2 EVENT_TIME ts WATERMARK 1m AS SELECT {results.WINDOW}, device, {results.AGGREGATES} "
        f"FROM sensors PARTITION BY device {clause}"
    )
    run = Run(session, logs.path, tmp_path / "run", query, results.VALUES)
    run.start(batch_bytes=9000)
    early = run.results()
    run.mark(results.LATER)
    run.start(batch_bytes=9000)  # and the last ones from the same checkpoint
    found = run.results()
    assert 0 < len(early) < len(found)
    assert len([rows for rows in run.batches.values() if rows]) > 2
    windows = naive(readings, mark, window)
    assert found == in_order(value for at, some in windows for value in results.told({at: some}, ["device"]))
