"""IGNORE EXPIRED 0: a record counts however late it comes, and a window's last result is that of all its records."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
from pyspark.errors import StreamingQueryException

from barnabas.storage.config import LogConfig
from barnabas.streams.tests.support import NOW, Logs
from barnabas.streams.tests.windows_support import Run
from barnabas.streams.windows import batches
from barnabas.streams.windows.session import streams_session
from barnabas.wire.queries.plan import Values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = Values(format="json", schema="device STRING, n INT, ts TIMESTAMP")
PARTITIONS = 3
AGAIN = "IGNORE EXPIRED 0 EVENT_TIME ts WATERMARK 5s"
SUMS = "SELECT _wstart, device, count(*) AS c, sum(n) AS s, last(n) AS l FROM sensors PARTITION BY device"
LIGHT = "SELECT _wstart, device, count(*) AS c, sum(n) AS s FROM sensors"
Window = tuple[str, str | None]


class Reading(NamedTuple):
    """A record for the plain evaluation."""

    ts: int
    place: tuple[int, int]
    device: str | None
    n: int


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return streams_session(spark)


def text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def logs_in(path: Path, segment_bytes: int = 3000) -> Logs:
    return Logs(path, LogConfig(segment_bytes=segment_bytes, index_interval_bytes=100))


def write(logs: Logs, seed: int, count: int = 180) -> list[Reading]:
    """One record per second in each partition; one in eight comes up to four minutes late."""
    moments = random.Random(seed)
    taken = []
    for partition in range(PARTITIONS):
        values = []
        for number in range(count // PARTITIONS):
            late = moments.choice((0,) * 7 + (moments.randrange(1000, 240_000),))
            reading = Reading(NOW + 1000 * number - late, (partition, number), moments.choice(("a", "b", None)), number)
            taken.append(reading)
            values.append(
                json.dumps({"device": reading.device, "n": reading.n, "ts": text(reading.ts)}).encode()
                if moments.random() < 0.95 or taken.pop() is None
                else b"{"
            )
        for number, value in enumerate(values):
            logs.write([value], "sensors", partition, timestamp=NOW + 1000 * number)
    return taken


def naive(readings: Iterable[Reading], length: int, step: int) -> dict[Window, dict[str, Any]]:
    """All windows of all records: their times, counts, sums and latest values."""
    found: dict[Window, list[Reading]] = defaultdict(list)
    for reading in readings:
        for start in range(reading.ts // step * step, reading.ts - length, -step):
            found[text(start), reading.device].append(reading)
    return {
        window: {
            "_wstart": window[0],
            "device": window[1],
            "c": len(mine),
            "s": sum(each.n for each in mine),
            "l": max(mine).n,
        }
        for window, mine in found.items()
    }


def told(run: Run, number: int = 0) -> dict[Window, list[dict[str, Any]]]:
    """The results of a stream's windows, in the order in which they came."""
    run.results()
    found: dict[Window, list[dict[str, Any]]] = defaultdict(list)
    for value in run.streams.get(number, []):
        found[value["_wstart"], value["device"]].append(value)
    return found


def closed_at(run: Run) -> int:
    """The time before which windows are closed: the watermark of the last batch."""
    checkpoint = run.folder.checkpoint
    return batches.watermark_ms(batches.text_of(checkpoint, batches.last_batch(checkpoint)))


def closed(windows: dict[Window, dict[str, Any]], before: int, length: int) -> dict[Window, dict[str, Any]]:
    return {window: value for window, value in windows.items() if window[0] <= text(before - length)}


@pytest.mark.long
def test_the_last_result_of_a_window_is_that_of_all_its_records(session: SparkSession, tmp_path: Path) -> None:
    logs = logs_in(tmp_path / "data")
    readings = write(logs, 1)
    run = Run(
        session, logs.path, tmp_path / "run", f"PARALLELISM 2 {AGAIN} AS {SUMS} INTERVAL(20s) SLIDING(10s)", VALUES
    )
    run.start(batch_bytes=5000)
    found = told(run)
    expected = closed(naive(readings, 20_000, 10_000), closed_at(run), 20_000)
    assert {window: values[-1] for window, values in found.items()} == expected
    assert any(len(values) > 1 for values in found.values()), "some came again"
    assert all(one["c"] < other["c"] for values in found.values() for one, other in pairwise(values))


@pytest.mark.long
def test_streams_that_share_a_query_and_rows_that_the_reader_has_aggregated(
    session: SparkSession, tmp_path: Path
) -> None:
    logs = logs_in(tmp_path / "data")
    readings = write(logs, 3)
    texts = [
        f"{AGAIN} AS {LIGHT} PARTITION BY device INTERVAL(10s)",
        f"{AGAIN} AS {LIGHT} WHERE n % 2 = 0 PARTITION BY device INTERVAL(30s) SLIDING(15s)",
    ]
    run = Run(session, logs.path, tmp_path / "run", texts, VALUES)
    reading = run.reading()
    assert reading is not None
    assert reading.panes is not None
    run.start(batch_bytes=5000)
    evens = [reading for reading in readings if reading.n % 2 == 0]
    for number, (mine, length, step) in enumerate(((readings, 10_000, 10_000), (evens, 30_000, 15_000))):
        found = {window: values[-1] for window, values in told(run, number).items()}
        expected = closed(naive(mine, length, step), closed_at(run), length)
        assert found == {window: {k: v for k, v in value.items() if k != "l"} for window, value in expected.items()}


@pytest.mark.long
def test_at_once_by_the_records_own_time_without_a_schema(session: SparkSession, tmp_path: Path) -> None:
    logs = logs_in(tmp_path / "data")
    times = [NOW + 1000 * n for n in range(60)] + [NOW + 2000, NOW + 3000]
    for number, ms in enumerate(times):
        logs.write([b"%d" % number], "sensors", 0, timestamp=ms)
    text_ = "IGNORE EXPIRED 0 TRIGGER AT_ONCE AS SELECT _wstart, count(*) AS c FROM sensors INTERVAL(10s)"
    run = Run(session, logs.path, tmp_path / "run", text_, Values())
    run.start(batch_bytes=600)
    last = {value["_wstart"]: value["c"] for value in (run.results(), run.streams[0])[1]}
    assert last == {text(NOW + 10_000 * n): 12 if not n else 10 for n in range(6)}


@pytest.mark.long
def test_windows_that_closed_too_long_ago_stay_as_they_are(session: SparkSession, tmp_path: Path) -> None:
    logs = logs_in(tmp_path / "data")

    def put(*seconds: int) -> None:
        for second in seconds:
            value = json.dumps({"device": "a", "n": 1, "ts": text(NOW + 1000 * second)}).encode()
            logs.write([value], "sensors", 0, timestamp=NOW + 100_000)

    put(1, 11, 21, 31, 41)
    options = "IGNORE EXPIRED 0 EXPIRED_TIME 25s EVENT_TIME ts AS"
    run = Run(session, logs.path, tmp_path / "run", f"{options} {LIGHT} PARTITION BY device INTERVAL(10s)", VALUES)
    run.start()
    assert [len(values) for values in told(run).values()] == [1, 1, 1, 1]
    put(2, 12, 22)  # the watermark is at 41: the first of these windows ended 31 seconds earlier
    run.start()
    assert {window[0]: [value["c"] for value in values] for window, values in told(run).items()} == {
        text(NOW): [1],
        text(NOW + 10_000): [1, 2],
        text(NOW + 20_000): [1, 2],
        text(NOW + 30_000): [1],
    }


@pytest.mark.long
def test_windows_whose_records_the_log_has_lost_stay_as_they_are(session: SparkSession, tmp_path: Path) -> None:
    logs = logs_in(tmp_path / "data", 140)

    def put(*seconds: int) -> None:
        for second in seconds:
            value = json.dumps({"device": "a", "n": 1, "ts": text(NOW + 1000 * second)}).encode()
            logs.write([value], "sensors", 0, timestamp=NOW + 1000 * max(second, 41 if second % 10 == 2 else 0))

    put(1, 11, 21, 31, 41)
    options = "IGNORE EXPIRED 0 EVENT_TIME ts MAX_AHEAD 1s AS"
    run = Run(session, logs.path, tmp_path / "run", f"{options} {LIGHT} PARTITION BY device INTERVAL(10s)", VALUES)
    run.start()
    assert [len(values) for values in told(run).values()] == [1, 1, 1, 1]
    logs.vnode("sensors", 0).truncate_prefix(1)
    put(2, 12, 22)
    run.start()
    again = {window[0]: [value["c"] for value in values] for window, values in told(run).items()}
    assert again == {
        text(NOW): [1],  # its first record is gone
        text(NOW + 10_000): [1],  # this one's may be gone too, as far as the log can tell
        text(NOW + 20_000): [1, 2],
        text(NOW + 30_000): [1],
    }


def test_records_before_the_stream_begins_do_not_count_later_either(session: SparkSession, tmp_path: Path) -> None:
    logs = logs_in(tmp_path / "data")
    for second in (1, 2, 11, 3, 31, 4):
        value = json.dumps({"device": "a", "n": second, "ts": text(NOW + 1000 * second)}).encode()
        logs.write([value], "sensors", 0, timestamp=NOW + 40_000)
    text_ = f"IGNORE EXPIRED 0 EVENT_TIME ts AS {LIGHT} PARTITION BY device INTERVAL(10s)"
    run = Run(session, logs.path, tmp_path / "run", text_, VALUES)
    run.start(starts=(2,), batch_bytes=60)
    assert {window[0]: [value["s"] for value in values] for window, values in told(run).items()} == {
        text(NOW): [3, 7],
        text(NOW + 10_000): [11],
    }


@pytest.mark.long
def test_a_damaged_byte_in_what_is_read_again_is_told_and_nothing_is_calculated_without_it(
    session: SparkSession, tmp_path: Path
) -> None:
    logs = logs_in(tmp_path / "data", 140)

    def put(*seconds: int) -> None:
        for second in seconds:
            value = json.dumps({"device": "a", "n": 1, "ts": text(NOW + 1000 * second)}).encode()
            logs.write([value], "sensors", 0, timestamp=NOW + 40_000)

    put(1, 11, 21)
    text_ = f"IGNORE EXPIRED 0 EVENT_TIME ts AS {LIGHT} PARTITION BY device INTERVAL(10s)"
    run = Run(session, logs.path, tmp_path / "run", text_, VALUES)
    run.start()
    assert [len(values) for values in told(run).values()] == [1, 1]
    put(2)
    segment = logs.path / "sensors-0" / f"{0:020}.log"  # it is closed: the log's end is known without it
    whole = segment.read_bytes()
    segment.write_bytes(whole.replace(b'"device"', b'"dewice"', 1))
    run.start()
    with pytest.raises((AssertionError, StreamingQueryException), match="sensors-0"):
        run.results()
    assert sum(map(len, run.batches.values())) == 2, "nothing more"
    segment.write_bytes(whole)
    run.start()
    assert [value["c"] for value in told(run)[text(NOW), "a"]] == [1, 2]
