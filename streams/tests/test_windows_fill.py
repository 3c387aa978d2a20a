"""FILL: windows without records, between two windows with records."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

import pandas as pd  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F

from barnabas.storage.config import LogConfig
from barnabas.streams.query.errors import QueryError
from barnabas.streams.tests.support import NOW, Logs
from barnabas.streams.tests.test_windows_results import (
    AGGREGATES,
    LATER,
    VALUES,
    WINDOW,
    Reading,
    aggregates,
    naive_windows,
    text,
    write,
)
from barnabas.streams.tests.windows_support import Run, in_order, members_of, of_rows, slots_of
from barnabas.streams.windows import limits
from barnabas.streams.windows.fill import FOLLOWING, MAX_FILLED, MAX_GAP, Follows, Last, Step, fill_value, follow
from barnabas.streams.windows.row_plan import OUTGROWN
from barnabas.streams.windows.row_plan import Step as RowStep
from barnabas.streams.windows.session import streams_session
from barnabas.wire.queries.plan import Values as TopicValues
from barnabas.wire.streams.clauses import parse_stream
from barnabas.wire.streams.windows import EventWindow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.state import GroupState

STEP = 1000


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 40)), unique=True, max_size=30),
    st.integers(0, 41),
)
def test_each_window_follows_the_one_before_of_its_key(made: list[tuple[str, int]], cut: int) -> None:
    """Wherever the batches are cut, since windows close in order."""
    windows = [(keys, number * STEP, f"{keys}{number}") for keys, number in made]
    kept: dict[str, Last] = {}
    found = [*follow(kept, [w for w in windows if w[1] < cut * STEP], STEP)]
    found += follow(kept, [w for w in windows if w[1] >= cut * STEP], STEP)
    expected = []
    for keys in "ab":
        mine = sorted((end, slots) for name, end, slots in windows if name == keys)
        expected += [Follows(keys, end, end, slots, "") for end, slots in mine[:1]]
        expected += [Follows(keys, end, before, slots, prior) for (before, prior), (end, slots) in pairwise(mine)]
    assert sorted(found) == sorted(expected)
    assert kept == {keys: Last(*max((e, s) for name, e, s in windows if name == keys)) for keys, *_ in windows}


def test_a_long_gap_is_left_and_a_key_that_is_behind_is_forgotten() -> None:
    kept: dict[str, Last] = {}
    list(follow(kept, [("a", 0, "1"), ("b", STEP, "2")], STEP))
    far = (MAX_GAP + 1) * STEP
    assert list(follow(kept, [("b", STEP + far, "3")], STEP)) == [Follows("b", STEP + far, STEP, "3", "2")]
    assert set(kept) == {"b"}
    late = STEP + 2 * far + STEP
    assert list(follow(kept, [("b", late, "4")], STEP)) == [Follows("b", late, late, "4", "")]


class State:
    """What Spark keeps for a part."""

    def __init__(self) -> None:
        self.get: tuple[bytes, ...] = ()
        self.exists = False

    def getCurrentWatermarkMs(self) -> int:
        """No time has passed."""
        return 0

    def update(self, kept: tuple[bytes, ...]) -> None:
        self.get, self.exists = kept, True


def call(step: Step, state: State, windows: list[tuple[str, int, str]]) -> list[tuple[Any, ...]]:
    frame = pd.DataFrame(windows, columns=["__keys", "__end", "__slots"])
    (found,) = step((3, 0), [frame], cast("GroupState", state))
    return list(found.itertuples(index=False, name=None))


def test_a_batch_that_fills_too_much_and_too_many_keys_are_an_error() -> None:
    state = State()
    many = MAX_FILLED // MAX_GAP + 1
    first = [(str(key), STEP, "x") for key in range(many)]
    assert call(Step(STEP, many), state, first) == [(3, *row) for row in sorted((k, e, e, s, "") for k, e, s in first)]
    with pytest.raises(RuntimeError, match=f"{OUTGROWN} 21,000 windows to fill, more than 20,000: drop"):
        call(Step(STEP, many), state, [(key, end + (MAX_GAP + 1) * STEP, "y") for key, end, _ in first])
    with pytest.raises(RuntimeError, match=r"21 keys, more than a 64th of MAX_STATE_ROWS \(20\)"):
        call(Step(STEP, many - 1), state, [("0", 2 * STEP, "y")])


def test_a_part_with_too_many_bytes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PART_BYTES", 3 << 20)
    state = State()
    windows = [(str(key), STEP, "x" * 1_000_000) for key in range(3)]
    call(Step(STEP, 1000), state, windows)
    with pytest.raises(RuntimeError, match=f"{OUTGROWN} 3 MiB, more than 3: drop the stream"):
        call(Step(STEP, 1000), state, [("more", STEP, "x" * 300_000)])
    windows_of_events = RowStep(EventWindow(), 1000)
    rows = pd.DataFrame(
        [(str(key), STEP, 0, key, "start", "x" * 1_000_000) for key in range(4)],
        columns=["__keys", "__at", "__partition", "__offset", "__mark", "__inputs"],
    )
    with pytest.raises(RuntimeError, match=f"{OUTGROWN} 3 MiB, more than 3: drop the stream"):
        list(windows_of_events((1, 2), [rows], cast("GroupState", State())))


# --- with Spark -------------------------------------------------------------------------------------------------------

VALUE_TEXT = "VALUE, 1, 2, 3, NULL, 5, 6.25, 7"
Values = dict[str, Any]
FILLS: dict[str, Callable[[Values, Values, float], Values]] = {
    "LINEAR": lambda before, after, share: {name: between(before[name], after[name], share) for name in before},
    VALUE_TEXT: lambda before, _after, _share: dict(zip(before, (1, 2.0, 3.0, None, 5.0, 6.25, 7.0), strict=True)),
}


def between(before: Any, after: Any, share: float) -> Any:
    if before is None or after is None:
        return None
    made = before + (after - before) * share
    return int(made) if isinstance(before, int) else made


def plain(readings: list[Reading], length: int, step: int, fill: str) -> list[dict[str, Any]]:
    """A plain evaluation over all records."""
    windows = naive_windows(readings, length, step, 0, lambda reading: reading.device)
    found = []
    for device in {key for key, *_ in windows}:
        mine = sorted((start, aggregates(some)) for (key, start, _), some in windows.items() if key == device)
        found += [(device, start, values) for start, values in mine]
        for (earlier, before), (start, after) in pairwise(mine):
            for at in range(earlier + step, start, step):
                found.append((device, at, FILLS[fill](before, after, (at - earlier) / (start - earlier))))
    told = []
    for device, start, values in found:
        named = {"spread(temp)" if name == "spread" else name: value for name, value in values.items()}
        of = {"_wstart": text(start), "_wend": text(start + length), "_wduration": length, "device": device}
        told.append({**of, **named})
    return in_order(told)


def test_results_are_those_of_a_plain_evaluation(spark: SparkSession, tmp_path: Path) -> None:
    """In several batches and after a start from the checkpoint; each kind of FILL on the same closed windows."""
    session = streams_session(spark)
    logs = Logs(tmp_path / "data", LogConfig(index_interval_bytes=500))
    readings = write(logs, 7, 240, sorted_=True)
    query = f"SELECT {WINDOW}, device, {AGGREGATES} FROM sensors PARTITION BY device INTERVAL(2s) SLIDING(1s)"
    texts = {fill: f"PARALLELISM 2 EVENT_TIME ts WATERMARK 1m AS {query} FILL({fill})" for fill in FILLS}
    run = Run(session, logs.path, tmp_path / "run", texts["LINEAR"], VALUES)
    run.keeps_rows = True
    run.start(batch_bytes=14_000)
    early = run.results()
    run.mark(LATER)
    run.start(batch_bytes=14_000)
    found = run.results()
    assert 0 < len(early) < len(found)
    assert len([rows for rows in run.batches.values() if rows]) > 1
    expected = plain(readings, 2000, 1000, "LINEAR")
    assert found == expected
    assert len(found) > len(naive_windows(readings, 2000, 1000, 0, lambda reading: reading.device)) + 10
    assert of_rows(session, run.rows, FOLLOWING, texts[VALUE_TEXT], VALUES) == plain(readings, 2000, 1000, VALUE_TEXT)


@pytest.mark.long
def test_decimals_dates_and_times_are_filled_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    """They pass through the operator's state, which is text."""
    logs = Logs(tmp_path / "data", LogConfig())
    schema = "d DECIMAL(20,3), day DATE, at TIMESTAMP, ntz TIMESTAMP_NTZ, ok BOOLEAN, k STRING"
    values = TopicValues(format="json", schema=schema)
    rows = [
        {"d": 12345678901234567.891, "day": "2024-02-29", "at": "2024-02-29T23:59:59.123456Z", "ok": True, "k": "é\n"},
        {"d": -0.5, "day": "1969-12-31", "at": "1969-12-31T23:59:59.999999Z", "ok": False, "k": None},
    ]
    for row in rows:
        row["ntz"] = str(row["at"])[:-1]
    decimals = ["12345678901234567.891", "-0.500"]
    for number, row in enumerate(rows):
        data = json.dumps(row, ensure_ascii=False).replace(json.dumps(row["d"]), decimals[number])
        logs.write([data.encode()], "s", timestamp=NOW + 3000 * number)
    query = (
        "SELECT _wstart, CAST(sum(d) AS STRING) AS s, CAST(max(d) AS STRING) AS m, max(day) AS day, min(at) AS at, "
        "min(ntz) AS ntz, bool_and(ok) AS ok, max(k) AS k FROM s INTERVAL(1s) FILL(PREV)"
    )
    run = Run(streams_session(spark), logs.path, tmp_path / "run", query, values)
    run.start()
    run.results()
    run.mark(LATER)
    run.start()
    first, last = (
        {"s": d, "m": d, "day": row["day"], "at": row["at"], "ntz": row["ntz"], "ok": row["ok"], "k": row["k"]}
        for row, d in zip(rows, decimals, strict=True)
    )
    found = [{name: value for name, value in each.items() if name != "_wstart"} for each in run.results()]
    assert found == [first, first, first, last]


def test_what_aggregates_have_in_windows_without_records(spark: SparkSession) -> None:
    ways = {
        "NULL": None,
        "PREV": 4,
        "NEXT": 9,
        "LINEAR": 5,
        "VALUE, -7": -7,
        "VALUE, 1, 2.9": 2,
        "VALUE, NULL": None,
    }
    frame = spark.range(1).select(F.lit(0.25).alias("__share"), F.lit(4).alias("p"), F.lit(9).alias("n"))
    columns, results = [], []
    for kind in ("int", "double", "decimal(5,2)"):
        for way, made in ways.items():
            fill = parse_stream(f"SELECT count(*) FROM s INTERVAL(1s) FILL({way})").fill
            assert fill is not None
            columns.append(
                fill_value(fill, 1, F.col("p").cast(kind), F.col("n").cast(kind), kind).alias(f"{kind} {way}")
            )
            fraction = {"LINEAR": 5.25, "VALUE, 1, 2.9": 2.9}.get(way, made) if kind != "int" else made
            results.append(fraction)
    text = parse_stream("SELECT count(*) FROM s INTERVAL(1s) FILL(VALUE, 'it')").fill
    truth = parse_stream("SELECT count(*) FROM s INTERVAL(1s) FILL(VALUE, true)").fill
    assert text is not None
    assert truth is not None
    columns.append(fill_value(text, 0, F.lit("a"), F.lit("b"), "string"))
    columns.append(fill_value(truth, 0, F.lit(False), F.lit(False), "boolean"))
    (row,) = frame.select(*columns).collect()
    assert [float(each) if isinstance(each, Decimal) else each for each in row] == [*results, "it", True]
    (row,) = frame.withColumn("__share", F.lit(1.0)).select(*columns[: len(results)]).collect()
    assert set(row) == {9}, "a window with records has its own"


@pytest.mark.parametrize(
    ("select", "fill", "told"),
    [
        ("first(device)", "LINEAR", 'at "FILL(LINEAR)": LINEAR is between numbers, and an aggregate is a string'),
        ("first(device)", "VALUE, 0", "FILL(VALUE) has 0 for an aggregate that is a string"),
        ("count(*)", "VALUE, 'none'", "FILL(VALUE) has 'none' for an aggregate that is a bigint"),
        ("count(*), max(n), max(n) + 1", "VALUE, 0, 1, 2", "it takes one, or one for each of the 2 aggregates"),
    ],
)
def test_what_is_refused_and_where(spark: SparkSession, select: str, fill: str, told: str) -> None:
    session = streams_session(spark)
    with pytest.raises(QueryError) as caught:
        slots_of(session, members_of([f"SELECT {select} FROM sensors INTERVAL(1s) FILL({fill})"]), VALUES)
    assert told in str(caught.value)
