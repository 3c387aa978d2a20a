"""Aggregation in the reader: results, watermarks and counters are those of the single records."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.storage.config import LogConfig
from barnabas.streams.source.names import CORRUPT
from barnabas.streams.tests.support import NOW, Logs
from barnabas.streams.tests.windows_support import Run, members_of, slots_of
from barnabas.streams.windows.panes import STANDS_FOR, Carrier, Panes
from barnabas.streams.windows.plan import reading
from barnabas.streams.windows.session import streams_session
from barnabas.streams.windows.slots import COUNT, TOTAL
from barnabas.wire.queries.plan import Values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.streams.windows.reading import Reading

VALUES = Values(
    format="csv", schema="device STRING, site STRING, temp DOUBLE, heat FLOAT, n INT, big BIGINT, ts TIMESTAMP"
)
PARTITIONS, STARTS = 3, (0, 40, 75)
TEXTS = (
    "avg(temp) AS a, count(*) AS c FROM sensors PARTITION BY device INTERVAL(10s)",
    "min(temp) AS a, max(temp) AS b, count(temp) AS c FROM sensors PARTITION BY device INTERVAL(10s) SLIDING(5s)",
    "min(heat) AS a, max(heat) AS b, sum(heat) AS s FROM sensors INTERVAL(7s, 2s)",
    "sum(n) AS s, spread(n) AS r, avg(n) AS a FROM sensors WHERE site <> 'x' PARTITION BY upper(device) INTERVAL(5s)",
    "sum(big) AS s, min(big) AS a, max(big) AS b, count(device) AS c FROM sensors PARTITION BY site INTERVAL(20s)",
    "count(*) AS c, max(n) AS m FROM sensors WHERE device IS NOT NULL PARTITION BY device, site INTERVAL(1m)",
)
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("x", pa.float64()),
        ("n", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        (CORRUPT, pa.string()),
    ]
)
CARRIERS = tuple(
    Carrier(*each) for each in (("count", ""), ("count", "x"), ("sum", "x"), ("min", "x"), ("max", "x"), ("sum", "n"))
)
ALL: dict[str, Any] = {"stretch_rows": 50, "least_rows": 1, "worth": 1.0}


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return streams_session(spark)


# --- the reader alone -------------------------------------------------------------------------------------------------


def panes(**changes: Any) -> Panes:
    made = Panes(1_000_000, "_timestamp", ("k",), CARRIERS, starts=(10,), **ALL)
    return msgspec.structs.replace(made, **changes)


def batches(rows: list[dict[str, Any]], each: int = 20) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), each):
        yield pa.RecordBatch.from_pylist(rows[start : start + each], schema=SCHEMA)


def row(number: int, ms: int | None, k: str | None = "a", x: float | None = 1.0, n: int | None = 1) -> dict[str, Any]:
    at = None if ms is None else ms * 1000
    return {"k": k, "x": x, "n": n, "_timestamp": at, "_partition": 0, "_offset": number, CORRUPT: None}


def folded(rows: list[dict[str, Any]], **changes: Any) -> list[dict[str, Any]]:
    found = [each for batch in panes(**changes).folded(batches(rows)) for each in batch.to_pylist()]
    for each in found:
        at = each["_timestamp"]
        each["ms"] = None if at is None else round(at.timestamp() * 1000)
    return found


def test_records_of_a_key_and_pane_become_one_row() -> None:
    rows = [row(10, 1_100, x=1.5), row(11, 1_900, x=None, n=None), row(12, 1_500, x=4.0, n=5), row(13, 2_000)]
    first, second = sorted(folded(rows), key=lambda each: each["ms"])
    assert first | {"_timestamp": 0} == {
        "k": "a",
        "x": None,
        "n": None,
        "ms": 1_900,
        "_timestamp": 0,
        "_partition": 0,
        "_offset": 10,
        CORRUPT: None,
        STANDS_FOR: 3,
        "__pane_count_x": 2,
        "__pane_sum_x": 5.5,
        "__pane_min_x": 1.5,
        "__pane_max_x": 4.0,
        "__pane_sum_n": 6,
    }
    assert (second["ms"], second[STANDS_FOR]) == (2_000, 1)


@pytest.mark.parametrize(
    "odd",
    [
        row(30, None),
        row(30, -1),
        row(30, 1_000, x=math.nan),
        row(9, 1_000),  # not all streams take it
        row(30, 1_000) | {CORRUPT: "{"},
    ],
    ids=["no time", "before 1970", "NaN", "before a stream", "malformed"],
)
def test_what_does_not_fit_stays_a_row(odd: dict[str, Any]) -> None:
    rows = sorted([*(row(number, 1_000) for number in range(10, 15)), odd], key=lambda each: each["_offset"])
    found = folded(rows)
    assert sorted((each[STANDS_FOR] or 0) for each in found) == [0, 5]
    (stayed,) = (each for each in found if each[STANDS_FOR] is None)
    assert stayed["_offset"] == odd["_offset"]
    assert {name for name, value in stayed.items() if name.startswith("__pane") and value is not None} == set()


@pytest.mark.parametrize("odd", [row(20, 1_000, x=-0.0), row(20, 1_000, n=2**62), row(20, 1_000, n=-(2**63))])
def test_a_stretch_in_which_an_order_or_an_overflow_decides_stays_as_it_is(odd: dict[str, Any]) -> None:
    rows = [*(row(number, 1_000) for number in range(10, 20)), odd]
    assert [each[STANDS_FOR] for each in folded(rows)] == [None] * 11


def test_an_event_time_too_far_ahead_stays_a_row() -> None:
    schema = SCHEMA.append(pa.field("ts", pa.timestamp("us", "UTC")))
    rows = [row(number, 5_000) | {"ts": ms * 1000} for number, ms in enumerate((5_100, 5_200, 6_000, 6_001), 10)]
    made = panes(time="ts", ahead_us=1_000_000)
    found = [each for b in made.folded(iter([pa.RecordBatch.from_pylist(rows, schema)])) for each in b.to_pylist()]
    assert sorted((round(each["ts"].timestamp() * 1000), each[STANDS_FOR]) for each in found if each[STANDS_FOR]) == [
        (5_200, 2),
        (6_000, 1),
    ]
    assert [round(each["ts"].timestamp() * 1000) for each in found if not each[STANDS_FOR]] == [6_001]


def test_few_records_of_a_key_stay_as_they_are_and_are_not_looked_at_again() -> None:
    many = [row(number, 1_000 * number) for number in range(10, 60)]
    dense = [row(number, 60_000) for number in range(60, 160)]
    assert {each[STANDS_FOR] for each in folded(many + dense, worth=0.7)} == {None}
    found = [each[STANDS_FOR] for each in folded(dense + many, worth=0.7)]
    assert sorted(Counter(found).items(), key=str) == [(1, 20), (40, 1), (60, 1), (None, 30)]
    assert {each[STANDS_FOR] for each in folded(dense, least_rows=101)} == {None}


@pytest.mark.parametrize("seed", range(20))
def test_rows_add_up_to_the_records(seed: int) -> None:
    moments = random.Random(seed)
    numbers, wholes = [*(quarter / 4 for quarter in range(-8, 9)), None, math.inf, math.nan], [None, 0, -5, 7]
    rows = [
        row(
            number,
            moments.choice((None, -1, 0, moments.randrange(5_000), moments.randrange(5_000))),
            moments.choice(("a", "b", "", None)),
            moments.choice([*numbers, *([-0.0] if number % 100 > 70 else [])]),
            moments.choice([*wholes, *([2**62] if number > 350 else [])]),
        )
        for number in range(400)
    ]
    found = folded(rows)
    assert any(each[STANDS_FOR] for each in found)

    def told(rows: list[dict[str, Any]]) -> dict[Any, Any]:
        """By key and pane: records, latest, and for x the count, sum, minimum and maximum; the sum of n."""
        made: dict[Any, list[Any]] = {}
        for each in rows:
            at = each["_timestamp"]
            us = at if at is None or isinstance(at, int) else round(at.timestamp() * 1e6)
            many = each.get(STANDS_FOR)
            x, n = each["x"], each["n"]
            one = [1, us, *([0, [], []] if x is None else [1, [x], [x]]), n or 0, [] if x is None else [x]]
            if many:
                low, high = each["__pane_min_x"], each["__pane_max_x"]
                count, total = each["__pane_count_x"], each["__pane_sum_x"]
                lows, highs, totals = ([] if v is None else [v] for v in (low, high, total))
                one = [many, us, count, lows, highs, each["__pane_sum_n"] or 0, totals]
            sums = made.setdefault((each["k"], None if us is None else us // 1_000_000), [0, us, 0, [], [], 0, []])
            for place, value in enumerate(one):
                if place == 1:
                    sums[1] = None if us is None else max(sums[1], us)
                else:
                    sums[place] += value
        return {
            key: (records, us, count, _order(lows, min), _order(highs, max), n, str(sum(totals, 0.0)))
            for key, (records, us, count, lows, highs, n, totals) in made.items()
        }

    assert told(found) == told(rows)


def _order(values: list[float], of: Callable[[list[float]], float]) -> str | None:
    """The minimum or maximum by Spark's rules: NaN is the greatest."""
    plain = [value for value in values if not math.isnan(value)]
    if not values or (of is max and len(plain) < len(values)) or not plain:
        return "NaN" if values else None
    return str(of(plain) + 0.0)


# --- streams ----------------------------------------------------------------------------------------------------------


class Folding(Run):
    """Streams over a reader that folds whenever possible, or never."""

    changes: dict[str, Any] | None = ALL

    def reading(self) -> Reading:
        found = super().reading()
        assert found is not None
        assert found.panes is not None
        wanted = None if self.changes is None else msgspec.structs.replace(found.panes, **self.changes)
        return found._replace(panes=wanted)


def write(logs: Logs, seed: int, later_ms: int = 0) -> None:
    moments = random.Random(seed)
    for partition in range(PARTITIONS):
        values = []
        for number in range(500):
            late = moments.choice((3_000, 20_000)) if moments.random() < 0.1 else 0
            at = NOW + later_ms + number * 40 - late - moments.randrange(500)
            if moments.random() < 0.01:
                at += 10**7  # too far ahead
            shown = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            fields = (
                moments.choice(("a", "b", "")),
                moments.choice(("x", "y")),
                moments.choice(("", "1.25", "-0.5", "3", *(["NaN", "-0.0"] if number > 450 and not partition else []))),
                moments.choice(("", "0.5", "-2.25", *(["NaN"] if number < 100 else []))),
                moments.choice(("", "1", "-7", "2147483647")),
                moments.choice(("", "5", "-6", *([str(2**61)] if number > 450 and partition == 1 else []))),
                "" if moments.random() < 0.02 else shown,
            )
            values.append(",".join(fields).encode() if moments.random() > 0.02 else b"no,such,record")
        logs.write(values, "sensors", partition, each=9, timestamp=NOW + later_ms)


def told(run: Run) -> tuple[Any, ...]:
    """Everything that must be the same: results, batch by batch, and the figures of each batch."""
    assert run.query is not None
    run.query.awaitTermination(120)
    assert run.query.exception() is None, run.query.exception()
    said = []
    for progress in run.query.recentProgress:
        (state,) = progress.stateOperators
        seen = progress.observedMetrics["barnabas"].asDict()
        late = state.numRowsDroppedByWatermark, state.numRowsTotal
        said.append((progress.batchId, progress.eventTime.get("watermark"), *late, seen, progress.numInputRows))
    results = {batch: Counter(map(repr, rows)) for batch, rows in run.batches.items()}
    return results, [each[:-1] for each in said], [each[-1] for each in said]


def made(
    session: SparkSession,
    logs: Logs,
    folder: Path,
    time: str,
    changes: dict[str, Any] | None,
    texts: Sequence[str] = TEXTS,
) -> Folding:
    run = Folding(
        session, logs.path, folder, [f"{time} WATERMARK 4s AS SELECT _wend, {text}" for text in texts], VALUES
    )
    run.changes = changes
    run.members[2] = run.members[2]._replace(starts=STARTS)
    return run


@pytest.mark.parametrize(
    "time", ["EVENT_TIME ts", pytest.param("", marks=pytest.mark.slow)], ids=["a column", "the record's own"]
)
@pytest.mark.long
def test_results_watermarks_and_counters_are_those_of_single_records(
    session: SparkSession, tmp_path: Path, time: str
) -> None:
    logs = Logs(tmp_path / "data", LogConfig(index_interval_bytes=500))
    plain, folding = (made(session, logs, tmp_path / f"{c is None}", time, c) for c in (None, ALL))
    said: list[tuple[Any, ...]] = []
    for seed, later_ms in enumerate((0, 20_000, 500_000)):
        write(logs, seed, later_ms)
        for run in (plain, folding):
            run.start(batch_bytes=60_000)
        (expected, of_plain, rows), (found, of_folding, fewer) = told(plain), told(folding)
        assert found == expected
        assert of_folding == of_plain
        assert sum(fewer) < sum(rows) * 0.7, "little was aggregated"
        said += of_plain
    assert sum(map(Counter.total, expected.values())) > 20
    if time:  # the records' own times are in order
        assert all(sum(of) for of in zip(*((late, seen["ahead"], seen["no_time"]) for *_, late, _, seen in said)))  # noqa: B905
    assert all(sum(seen[name] for *_, seen in said) for name in ("records", "malformed"))


@pytest.mark.long
def test_a_query_goes_on_with_and_without_it(session: SparkSession, tmp_path: Path) -> None:
    """The state is the same, even for a query whose slots count row by row."""
    logs = Logs(tmp_path / "data", LogConfig())
    some = TEXTS[1:4]  # these include each kind of slot; the test above has all streams
    plain, mixed = (made(session, logs, tmp_path / f"{c is None}", "EVENT_TIME ts", c, some) for c in (None, ALL))
    for number, changes in enumerate((ALL, None, ALL)):
        write(logs, number, number * 20_000)
        mixed.changes = changes
        for run in (plain, mixed):
            run.start()
            told(run)
    assert plain.batches
    assert {b: Counter(map(repr, rows)) for b, rows in mixed.batches.items()} == {
        b: Counter(map(repr, rows)) for b, rows in plain.batches.items()
    }


def panes_of(session: SparkSession, text: str, *, of_old: bool = False) -> Panes | None:
    members = members_of([text])
    slots = slots_of(session, members, VALUES)
    if of_old:
        slots = [COUNT if slot == TOTAL else slot for slot in slots]
    found = reading(session, members, slots, VALUES)
    assert found is not None
    return found.panes


def test_which_streams_it_is_for(session: SparkSession) -> None:
    found = panes_of(
        session, "SELECT count(*) AS c, avg(temp) AS t FROM sensors WHERE n > 3 INTERVAL(10s, 4s) SLIDING(6s)"
    )
    assert found is not None
    assert (found.pane_us, found.time, found.keys) == (2_000_000, "_timestamp", ("n",))
    assert set(found.carriers) == {Carrier("count", ""), Carrier("count", "temp"), Carrier("sum", "temp")}
    for text in (
        "SELECT sum(temp + 1) AS s FROM sensors INTERVAL(1s)",
        "SELECT count_if(n > 1) AS s FROM sensors INTERVAL(1s)",
        "SELECT count(temp) AS s FROM sensors PARTITION BY heat INTERVAL(1s)",
        "SELECT first(temp) AS s FROM sensors INTERVAL(1s)",
        "SELECT stddev(temp) AS s FROM sensors INTERVAL(1s)",
        "SELECT max(device) AS s FROM sensors INTERVAL(1s)",
        "SELECT max(temp) AS s FROM sensors SESSION(1s)",
        "SELECT max(temp) AS s FROM sensors COUNT_WINDOW(3)",
        "SELECT max(temp) AS s FROM sensors PERIOD(1s)",
    ):
        assert panes_of(session, text) is None, text


@pytest.mark.long
def test_a_query_whose_state_counts_row_by_row_is_read_so(session: SparkSession, tmp_path: Path) -> None:
    assert panes_of(session, "SELECT count(n) AS s FROM sensors INTERVAL(1s)", of_old=True) is None
    assert panes_of(session, "SELECT sum(n) AS s FROM sensors INTERVAL(1s)", of_old=True) is not None
    logs = Logs(tmp_path / "data", LogConfig())
    write(logs, 1)
    text = "EVENT_TIME ts WATERMARK 1s AS SELECT avg(temp) AS a, count(*) AS c FROM sensors INTERVAL(10s)"
    old, new = (Run(session, logs.path, tmp_path / name, text, VALUES) for name in ("old", "new"))
    old.slots = [COUNT if slot == TOTAL else slot for slot in old.slots]
    for run in (old, new):
        run.start()
    assert json.dumps(old.results()) == json.dumps(new.results()) != "[]"


def test_only_needed_columns_are_read_and_a_value_must_fit_all(session: SparkSession, tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data", LogConfig())
    logs.write([b"a,,1,,1,1,", b"a,,1,,no number,1,", b"a,,1,,1,1,"], "sensors")
    logs.write([b"a,,1,,1,1,"], "sensors", timestamp=NOW + 60_000)
    run = Run(session, logs.path, tmp_path / "run", "SELECT sum(temp) AS s FROM sensors INTERVAL(1s)", VALUES)
    found = run.reading()
    assert found is not None
    names = found.read.names
    assert {"temp", "_timestamp", CORRUPT} < set(names)
    assert not {"_key", "_headers", "_topic", "n", "device"} & set(names)
    run.start()
    assert run.results() == [{"s": 2.0}]
