"""A stream's results are those of a batch query over the whole log, and those of a plain evaluation in Python."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.storage.config import LogConfig
from barnabas.streams.query.errors import QueryError
from barnabas.streams.tests.support import NOW, Logs
from barnabas.streams.tests.windows_support import Run, in_batch, in_order, rows_in_batch
from barnabas.streams.windows.plan import check, check_fits, parsed
from barnabas.streams.windows.session import streams_session
from barnabas.streams.windows.watched import AHEAD, MALFORMED, NO_TIME, OBSERVED, RECORDS
from barnabas.wire.queries.plan import Values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = Values(format="json", schema="device STRING, temp DOUBLE, n INT, ts TIMESTAMP")
PARTITIONS, AHEAD_MS = 3, 60_000
LATER = NOW + 10**9


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return streams_session(spark)


class Reading(NamedTuple):
    """A record for the plain evaluation."""

    ts: int
    place: tuple[int, int]
    device: str | None
    temp: float | None
    n: int


def text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def write(logs: Logs, seed: int, count: int = 400, *, sorted_: bool = False) -> list[Reading]:
    """Out of order, with equal times, nulls, and records without a time, far in the future, or that are not JSON."""
    moments = random.Random(seed)
    taken: list[Reading] = []
    for partition in range(PARTITIONS):
        values: list[bytes] = []
        for number in range(count // PARTITIONS):
            step = NOW - 300_000 + number * 1000 if sorted_ else NOW - moments.choice((0, 20_000, 150_000))
            ts: int | None = step - moments.randrange(0, 20_000, 500)
            device = moments.choice(("a", "b", "c", None))
            temp = moments.choice((None, *(quarter / 4 for quarter in range(-8, 40))))
            kind = moments.random()
            if kind < 0.03:
                ts = None
            elif kind < 0.05:
                ts = NOW + count + AHEAD_MS + moments.randint(1, 10**9)
            value: dict[str, Any] = {"device": device, "temp": temp, "n": number}
            if ts is not None or moments.random() < 0.5:
                value["ts"] = None if ts is None else text(ts)
            is_json = kind < 0.95
            values.append(json.dumps(value).encode() if is_json else b'{"device": ')
            if is_json and ts is not None and ts <= NOW + count + AHEAD_MS:
                taken.append(Reading(ts, (partition, number), device, temp, number))
        logs.write(values, "sensors", partition, each=7)
    return taken


def aggregates(readings: list[Reading]) -> dict[str, Any]:
    """The aggregates of the streams below."""
    temps = [(r.ts, r.place, r.temp) for r in readings if r.temp is not None]
    values = [temp for *_, temp in temps]
    return {
        "c": len(readings),
        "t": sum(values) / len(values) if values else None,
        "s": sum(values) if values else None,
        "least": min(values, default=None),
        "f": min(temps)[2] if temps else None,
        "l": max(temps)[2] if temps else None,
        "spread": max(values) - min(values) if values else None,
    }


AGGREGATES = (
    "count(*) AS c, avg(temp) AS t, sum(temp) s, min(temp) AS least, first(temp) f, last(temp) AS l, spread(temp)"
)


def naive_windows(
    readings: Iterable[Reading], length: int, step: int, offset: int, key: Callable[[Reading], Any]
) -> dict[tuple[Any, int, int], list[Reading]]:
    found: dict[tuple[Any, int, int], list[Reading]] = defaultdict(list)
    for reading in readings:
        last = (reading.ts - offset) // step * step + offset
        for start in range(last, reading.ts - length, -step):
            found[key(reading), start, start + length].append(reading)
    return found


def naive_sessions(
    readings: Iterable[Reading], gap: int, key: Callable[[Reading], Any]
) -> dict[tuple[Any, int, int], list[Reading]]:
    by_key: dict[Any, list[Reading]] = defaultdict(list)
    for reading in readings:
        by_key[key(reading)].append(reading)
    found = {}
    for name, mine in by_key.items():
        mine.sort()
        sessions = [[mine[0]]]
        for reading in mine[1:]:
            if reading.ts <= sessions[-1][-1].ts + gap:
                sessions[-1].append(reading)
            else:
                sessions.append([reading])
        for session in sessions:
            found[name, session[0].ts, session[-1].ts + gap] = session
    return found


def told(windows: dict[tuple[Any, int, int], list[Reading]], names: list[str]) -> list[dict[str, Any]]:
    values = []
    for (key, start, end), readings in windows.items():
        keys = dict(zip(names, key if isinstance(key, tuple) else (key,), strict=False))
        made = {"_wstart": text(start), "_wend": text(end), "_wduration": end - start, **keys, **aggregates(readings)}
        made["spread(temp)"] = made.pop("spread")
        values.append(made)
    return in_order(values)


def odd(reading: Reading) -> Any:
    return (reading.device.upper() if reading.device else None, reading.n % 2)


WINDOW = "_wstart, _wend, _wduration"
STREAMS: dict[str, tuple[str, Callable[[list[Reading]], list[dict[str, Any]]]]] = {
    "sliding": (
        f"PARALLELISM 3 EVENT_TIME ts AS SELECT {WINDOW}, upper(device) AS d, odd, {AGGREGATES} FROM sensors "
        "WHERE n > 3 PARTITION BY upper(device), n % 2 AS odd "
        "INTERVAL(10s) SLIDING(4s) HAVING count(*) > 1 OR max(temp) > 100",
        lambda all_: told(
            {
                window: found
                for window, found in naive_windows((r for r in all_ if r.n > 3), 10_000, 4000, 0, odd).items()
                if len(found) > 1
            },
            ["d", "odd"],
        ),
    ),
    "tumbling": (
        f"EVENT_TIME ts PRE_FILTER(device IS NOT NULL) AS SELECT {WINDOW}, {AGGREGATES} FROM sensors INTERVAL(1m, 7s)",
        lambda all_: told(naive_windows((r for r in all_ if r.device), 60_000, 60_000, 7000, lambda r: ()), []),
    ),
    "session": (
        f"PARALLELISM 2 AS SELECT {WINDOW}, device, {AGGREGATES} FROM sensors PARTITION BY device SESSION(ts, 1500a)",
        lambda all_: told(naive_sessions(all_, 1500, lambda r: r.device), ["device"]),
    ),
    "one session": (
        f"AS SELECT {WINDOW}, {AGGREGATES} FROM sensors SESSION(ts, 2s)",
        lambda all_: told(naive_sessions(all_, 2000, lambda r: ()), []),
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_results_of_a_batch_are_those_of_a_plain_evaluation(session: SparkSession, tmp_path: Path, name: str) -> None:
    logs = Logs(tmp_path / "data", LogConfig())
    query, plain = STREAMS[name]
    expected = plain(write(logs, 1))
    assert len(expected) > 1
    assert in_batch(session, logs.path, query, VALUES) == expected


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name != "session")) for name in STREAMS]
)
def test_results_are_those_of_a_plain_evaluation(session: SparkSession, tmp_path: Path, name: str) -> None:
    logs = Logs(tmp_path / "data", LogConfig())
    readings = write(logs, 1)
    query, plain = STREAMS[name]
    run = Run(session, logs.path, tmp_path / "run", query, VALUES)
    run.mark(LATER)
    run.start()
    assert run.results() == plain(readings)
    assert run.query is not None
    seen = [p.observedMetrics[OBSERVED] for p in run.query.recentProgress if p.numInputRows]
    bad = sum(s[NO_TIME] + s[AHEAD] + s[MALFORMED] for s in seen)
    assert all(min(s[NO_TIME], s[AHEAD], s[MALFORMED]) > 0 for s in seen)
    assert sum(s[RECORDS] for s in seen) == len(readings) + bad == PARTITIONS * (400 // PARTITIONS)


@pytest.mark.slow
def test_several_batches_with_a_watermark_that_covers_the_disorder_give_the_same(
    session: SparkSession, tmp_path: Path
) -> None:
    """The records of a partition are at most 20 s out of order, and the partitions' clocks are in step."""
    logs = Logs(tmp_path / "data", LogConfig())
    readings = write(logs, 2, sorted_=True)
    query, plain = STREAMS["sliding"]
    run = Run(session, logs.path, tmp_path / "run", f"WATERMARK 1m {query}", VALUES)
    run.start(batch_bytes=12_000)
    early = run.results()
    assert len([rows for rows in run.batches.values() if rows]) > 1, "windows close one after the other"
    run.mark(LATER)
    run.start(batch_bytes=12_000)  # and the last ones with the mark, from the same checkpoint
    found = run.results()
    assert len(found) > len(early)
    assert found == plain(readings)


@pytest.mark.long
def test_late_records_are_ignored_and_at_once_tells_of_every_change(session: SparkSession, tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data", LogConfig())

    def put(*seconds: int) -> None:
        values = [json.dumps({"device": "a", "n": 1, "ts": text(NOW - 60_000 + 1000 * s)}).encode() for s in seconds]
        logs.write(values, "sensors")

    text_ = "EVENT_TIME ts {} AS SELECT _wstart, count(*) AS c, sum(n) s FROM sensors PARTITION BY device INTERVAL(10s)"
    closed = Run(session, logs.path, tmp_path / "closed", text_.format("WATERMARK 5s"), VALUES)
    at_once = Run(session, logs.path, tmp_path / "at once", text_.format("TRIGGER AT_ONCE WATERMARK 5s"), VALUES)
    counts: list[tuple[list[int], list[int]]] = []
    for seconds in ((11, 12), (13, 30), (14,), (17, 28, 47)):
        put(*seconds)
        before = len(closed.batches), len(at_once.batches)
        closed.start()
        at_once.start()
        closed.results()
        at_once.results()
        counts.append(
            (
                [value["c"] for rows in list(closed.batches.values())[before[0] :] for _, value, _ in rows],
                [value["c"] for rows in list(at_once.batches.values())[before[1] :] for _, value, _ in rows],
            )
        )
    # 11 to 13 close when 30 comes; 14 and 17 are late; 28 and 30 are in windows of their own, which close when 47
    # comes.
    assert [closes for closes, _ in counts] == [[], [3], [], [1, 1]]
    assert [sorted(changes) for _, changes in counts] == [[2], [1, 3], [], [1, 1]]
    for run in (closed, at_once):
        assert run.query is not None
        assert sum(o.numRowsDroppedByWatermark for p in run.query.recentProgress for o in p.stateOperators) == 1


def test_keys_and_timestamps_of_results(session: SparkSession, tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data", LogConfig())
    rows = [{"device": "a", "n": 1, "ts": text(NOW - 60_000)}, {"n": 2, "ts": text(NOW - 60_000)}]
    logs.write([json.dumps(row).encode() for row in rows], "sensors")
    texts = [
        f"EVENT_TIME ts {query} INTERVAL(1s)"
        for query in (
            "AS SELECT count(*) c FROM sensors PARTITION BY device",
            "AS SELECT count(*) c FROM sensors PARTITION BY device, n",
            "SUBTABLE(concat('of ', coalesce(device, 'nobody'))) AS SELECT count(*) c FROM sensors PARTITION BY device",
            "AS SELECT count(*) c FROM sensors",
            "TAGS(N, Device AS d) AS SELECT n, count(*) c FROM sensors PARTITION BY device, temp, n",
            "TAGS(n) AS SELECT count(*) c FROM sensors PARTITION BY device, n",
        )
    ]
    # A stream's results are made in the same way in a batch over the log, which starts in a tenth of the time.
    results = [rows_in_batch(session, logs.path, query, VALUES) for query in texts]
    run = Run(session, logs.path, tmp_path / "run", texts[4], VALUES)
    run.mark(LATER)
    run.start()
    values = run.results()
    of_stream = [row for batch in run.batches.values() for row in batch]
    as_told = [(None if row.key is None else bytes(row.key).decode(), row.timestamp) for row in results[4]]
    assert sorted((key, at) for key, _, at in of_stream) == sorted(as_told)
    beginning = datetime.fromtimestamp((NOW - 60_000) // 1000, UTC)
    assert {row.timestamp.replace(tzinfo=UTC) for found in results for row in found} == {beginning}
    assert [{None if row.key is None else bytes(row.key).decode() for row in found} for found in results] == [
        {"a", None},
        {'{"device":"a","n":1}', '{"device":null,"n":2}'},
        {"of a", "of nobody"},
        {None},
        {'{"N":1,"d":"a"}', '{"N":2,"d":null}'},
        {"1", "2"},
    ]
    assert values == [{"n": 1, "c": 1, "d": "a"}, {"n": 2, "c": 1, "d": None}]


def test_a_topic_fits_that_has_the_same_columns(session: SparkSession) -> None:
    check_fits("t", "", "c bigint")
    check_fits("t", "c BIGINT, d STRING", "d string, c bigint")
    with pytest.raises(QueryError, match="use another topic"):
        check_fits("t", "c INT", "c bigint")
    with pytest.raises(QueryError, match="use another topic"):
        check_fits("t", "not a schema, is it", "c bigint")


def test_streams_are_looked_at_in_several_threads(session: SparkSession) -> None:
    """One is being started while the broker asks about another one."""

    def gives(number: int) -> str:
        clauses, stages = parsed(f"SELECT c{number}, count(*) c FROM s PARTITION BY n + 1 AS c{number} INTERVAL(1s)")
        return check(session, clauses, stages, VALUES).value_schema

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(gives, range(8))) == [f"c{number} int, c bigint" for number in range(8)]
