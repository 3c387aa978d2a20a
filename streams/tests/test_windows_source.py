"""The source of a stream: marks in its offsets, and a backlog that is read in the order of time."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import StructType

from barnabas.storage.config import LogConfig
from barnabas.streams.tests.support import NOW, Logs, numbers
from barnabas.streams.tests.windows_support import NOWHERE
from barnabas.streams.wal import LogDir, plan, read
from barnabas.streams.windows import source
from barnabas.streams.windows.due import WAIT_MS, Rule, rule_of
from barnabas.streams.windows.source import (
    QUIET_SECONDS,
    REST_SECONDS,
    WAIT_SECONDS,
    MarkedReader,
    MarkPartition,
    StreamDataSource,
    mark_of,
    read_mark,
    write_mark,
)
from barnabas.streams.windows.watched import CLOCK, CLOSE
from barnabas.wire.streams.clauses import parse_stream

ALL = ReadAllAvailable()


def watermark(folder: Path, ms: int) -> None:
    """Note the watermark after a batch, like Spark does."""
    commits = folder / "checkpoint" / "commits"
    commits.mkdir(parents=True, exist_ok=True)
    (commits / str(len(os.listdir(commits)))).write_text(f'v1\n{{"nextBatchWatermarkMs":{ms}}}')


def spark_did(folder: Path, offset: dict[str, Any], had: int, after: int) -> None:
    """Note a batch with its watermark and the one after it, like Spark does."""
    path = folder / "checkpoint" / "offsets" / str(len(list((folder / "checkpoint").glob("offsets/*"))))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'v1\n{{"batchWatermarkMs":{had}}}\n{json.dumps(offset)}')
    watermark(folder, after)


def reader(
    logs: Logs,
    close_file: Path,
    rate: int = 0,
    period: str = "",
    rule: Rule = Rule(),  # noqa: B008
) -> MarkedReader:
    options = {"path": str(logs.path), "topics": "t", "bootstrap.servers": NOWHERE, "startingOffsets": "earliest"}
    data_source = StreamDataSource(
        {
            **options,
            "closeFile": str(close_file),
            "holdFile": str(close_file.with_name("hold")),
            "foreseeFile": str(close_file.with_name("foresee")),
            "bytesPerSecond": str(rate),
            "period": period,
            "rule": rule.encode(),
        }
    )
    kinds = {"key": "binary", "value": "binary", "timestamp": "timestamp", "offset": "long"}
    return data_source.streamReader(struct({**kinds, CLOSE: "timestamp"}, required=("offset",)))


def struct(kinds: dict[str, str], required: Iterable[str] = ()) -> StructType:
    """A schema, made without Spark."""
    fields = [
        {"name": name, "type": kind, "nullable": name not in required, "metadata": {}} for name, kind in kinds.items()
    ]
    return StructType.fromJson({"type": "struct", "fields": fields})


def rows(made: MarkedReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    batches = [batch for part in made.partitions(start, end) for batch in made.read(part)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_a_mark_is_a_row_of_its_own_once_and_again_when_its_batch_is_repeated(tmp_path: Path) -> None:
    logs, close = Logs(tmp_path / "data"), tmp_path / "close"
    logs.write(numbers(0, 5))
    made = reader(logs, close)
    start = made.initialOffset()
    first = made.latestOffset(start, ALL)
    assert [row["value"] for row in rows(made, start, first)] == numbers(0, 5)
    assert {row[CLOSE] for row in rows(made, start, first)} == {None}
    assert made.latestOffset(first, ALL) == first, "nothing is new"
    assert read_mark(str(close)) == 0
    write_mark(str(close), NOW)
    second = made.latestOffset(first, ALL)
    assert second != first
    for again in (made, reader(logs, tmp_path / "gone")):  # what the file says now is ignored
        (mark,) = rows(again, first, second)
        assert (mark[CLOSE].timestamp() * 1000, mark["value"], mark["timestamp"]) == (NOW, None, None)
    assert rows(made, second, second) == []
    assert made.latestOffset(second, ALL) == second
    write_mark(str(close), NOW - 1)
    assert made.latestOffset(second, ALL) == second, "a mark does not go back"
    logs.write(numbers(5, 6))
    third = made.latestOffset(second, ALL)
    assert [type(part) for part in made.partitions(second, third)].count(MarkPartition) == 0
    assert [row["value"] for row in rows(made, second, third)] == numbers(5, 6)


def test_one_task_reads_a_small_batch_of_all_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(tmp_path / "data")
    logs.write(numbers(0, 5))
    logs.write(numbers(5, 9), partition=1)
    made = reader(logs, tmp_path / "close")
    start = made.initialOffset()
    end = made.latestOffset(start, ALL)
    (task,) = made.partitions(start, end)
    assert [row["value"] for batch in made.read(task) for row in batch.to_pylist()] == numbers(0, 9)
    monkeypatch.setattr(source, "_ONE_TASK_BYTES", 10)
    parts = made.partitions(start, end)
    assert len(parts) == 2
    assert [row["value"] for row in rows(made, start, end)] == numbers(0, 9)


class Clock:
    """Replaces `time`: nobody waits."""

    def __init__(self) -> None:
        self.now, self.worked = 100.0, 0.0
        self.slept: list[float] = []
        #: Events at given times.
        self.events: list[tuple[float, Callable[[], object]]] = []

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.worked

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)
        while self.events and self.events[0][0] <= self.now:
            self.events.pop(0)[1]()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(source, "time", made)
    return made


def settled(made: MarkedReader, at: dict[str, Any], write: Callable[[], object], clock: Clock) -> dict[str, Any]:
    """The offset after some unneeded batches: the next data waits for long."""
    for _ in range(5):
        write()
        before = at
        while at == before:
            at = made.latestOffset(before, ALL)
    assert made.latestOffset(at, ALL) == at
    clock.slept.clear()
    return at


def of_ten_seconds() -> Rule:
    clauses = parse_stream("AS SELECT count(*) FROM t INTERVAL(10s)")
    return rule_of(clauses, [clauses.window])


def test_the_source_waits_for_what_closes_a_window(tmp_path: Path, clock: Clock) -> None:
    logs, began = Logs(tmp_path / "data"), NOW // 10_000 * 10_000
    logs.write(numbers(0, 5), timestamp=began)
    made = reader(logs, tmp_path / "close", rule=of_ten_seconds())
    first = made.latestOffset(made.initialOffset(), ALL)
    assert first["t"] == {"0": 5}
    watermark(tmp_path, began)
    assert (made.latestOffset(first, ALL), clock.slept) == (first, []), "Spark has another batch to do perhaps"
    first = settled(made, first, lambda: logs.write(numbers(0, 1), timestamp=began), clock)
    logs.write(numbers(5, 6), timestamp=began + 1000)
    assert made.latestOffset(first, ALL) == first
    assert sum(clock.slept) <= WAIT_SECONDS + 0.01, "Spark is not kept for long"
    clock.events.append((clock.now + 0.1, lambda: logs.write(numbers(6, 7), timestamp=began + 10_000)))
    waited = clock.now
    second = made.latestOffset(first, ALL)
    assert second["t"] == {"0": 12}
    assert 0.1 <= clock.now - waited <= 0.35, "and it goes on as soon as there is something to do"
    watermark(tmp_path, began + 10_000)
    assert made.latestOffset(second, ALL) == second
    logs.write(numbers(7, 8), timestamp=began + 11_000)
    waited, at = clock.now, second
    while at == second:
        at = made.latestOffset(at, ALL)
    assert at["t"] == {"0": 13}
    assert clock.now - waited <= WAIT_MS / 1000 + 0.01


def test_the_watermark_after_a_batch_is_in_its_offset(tmp_path: Path, clock: Clock) -> None:
    logs, began = Logs(tmp_path / "data"), NOW // 10_000 * 10_000
    logs.write(numbers(0, 5), timestamp=began)
    made = reader(logs, tmp_path / "close", rule=of_ten_seconds())
    first = made.latestOffset(made.initialOffset(), ALL)
    assert first["#close"] == {"at": 0}, "Spark is not prepared"
    spark_did(tmp_path, first, 0, began + 4)
    second = made.latestOffset(first, ALL)
    assert (second["t"], second["#close"]) == (first["t"], {"at": 0, "foreseen": began + 4}), "a batch without records"
    spark_did(tmp_path, second, began + 4, began + 4)
    assert made.latestOffset(second, ALL) == second, "which is the only one"
    (tmp_path / "foresee").touch()
    logs.write(numbers(0, 1), timestamp=began + 10_000)
    third = made.latestOffset(second, ALL)
    assert (third["t"], third["#close"]) == ({"0": 6}, {"at": 0, "foreseen": began + 10_000})
    spark_did(tmp_path, third, began + 10_000, began + 10_000)
    assert made.latestOffset(third, ALL) == third
    write_mark(str(tmp_path / "close"), began + 30_000)
    fourth = made.latestOffset(third, ALL)
    assert (fourth["t"], fourth["#close"]) == ({"0": 6}, {"at": began + 30_000, "foreseen": began + 30_000})
    assert mark_of(fourth) == began + 30_000


def test_of_a_backlog_no_watermark_is_foreseen(tmp_path: Path) -> None:
    """The next batch follows at once and closes windows, and the source would read all records twice."""
    logs = Logs(tmp_path / "data")
    logs.write(numbers(0, 30), timestamp=NOW)
    (tmp_path / "foresee").touch()
    made = reader(logs, tmp_path / "close", rule=of_ten_seconds())
    first = made.latestOffset(made.initialOffset(), ReadMaxBytes(300))
    assert (first["t"]["0"] < 30, first["#close"]) == (True, {"at": 0})


def test_marks_end_the_waiting_and_what_is_held_waits(tmp_path: Path, clock: Clock) -> None:
    logs, began = Logs(tmp_path / "data"), NOW // 10_000 * 10_000
    logs.write(numbers(0, 5), timestamp=began)
    made = reader(logs, tmp_path / "close", rule=of_ten_seconds())
    first = made.latestOffset(made.initialOffset(), ALL)
    watermark(tmp_path, began)
    first = settled(made, first, lambda: logs.write(numbers(0, 1), timestamp=began), clock)
    logs.write(numbers(5, 6), timestamp=began)
    (tmp_path / "hold").touch()
    write_mark(str(tmp_path / "close"), began + 1)
    assert made.latestOffset(first, ALL) == first
    (tmp_path / "hold").unlink()
    marked = made.latestOffset(first, ALL)
    assert (marked["t"], marked["#close"]) == ({"0": 11}, {"at": began + 1})


def test_a_quiet_source_rests_and_asks_seldom(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[float]()
    ranges = LogDir.ranges

    def ask(log_dir: LogDir, keys: Iterable[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        asked.append(clock.now)
        return ranges(log_dir, keys)

    monkeypatch.setattr(LogDir, "ranges", ask)
    logs = Logs(tmp_path / "data")
    logs.write(numbers(0, 5))
    made = reader(logs, tmp_path / "close")
    at = made.latestOffset(made.initialOffset(), ALL)
    made.latestOffset(at, ALL)
    clock.now += QUIET_SECONDS
    asked.clear()
    for _ in range(60):
        assert made.latestOffset(at, ALL) == at
    assert set(clock.slept) == {REST_SECONDS}
    assert len(asked) <= 13, "once in five seconds"
    logs.write(numbers(5, 6))
    clock.slept.clear()
    following = made.latestOffset(at, ALL)
    assert (following != at, clock.slept) == (True, [])


def test_looks_take_a_small_part_of_a_core(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source may have thousands of partitions."""
    logs = Logs(tmp_path / "data")
    logs.write(numbers(0, 5))
    made = reader(logs, tmp_path / "close", rule=of_ten_seconds())
    at = made.latestOffset(made.initialOffset(), ALL)
    made.latestOffset(at, ALL)
    look = made._look

    def long_look(start: dict[str, Any], limit: ReadAllAvailable) -> tuple[dict[str, Any], float]:
        clock.worked += 0.01
        clock.now += 0.01
        return look(start, limit)

    monkeypatch.setattr(made, "_look", long_look)
    before, worked = clock.now, clock.worked
    for _ in range(10):
        made.latestOffset(at, ALL)
    assert clock.worked - worked <= (clock.now - before) / 12


@pytest.mark.parametrize("format", ["json", "csv"])
def test_event_times_of_a_column_decide(tmp_path: Path, clock: Clock, format: str) -> None:
    """A value without one does not count, nor one whose time is too far ahead."""
    logs, began = Logs(tmp_path / "data"), NOW // 10_000 * 10_000

    def write(*times: int | None) -> None:
        texts = [None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat() for ms in times]
        values = [json.dumps({"at": text, "n": 1}) if format == "json" else f"{text or ''},1" for text in texts]
        logs.write([value.encode() for value in [*values, "{"]], timestamp=began)

    write(began)
    clauses = parse_stream("EVENT_TIME at MAX_AHEAD 1m AS SELECT count(*) FROM t INTERVAL(10s)")
    found = StreamDataSource(
        {
            "path": str(logs.path),
            "topics": "t",
            "bootstrap.servers": NOWHERE,
            "startingOffsets": "earliest",
            "format": format,
            "closeFile": str(tmp_path / "close"),
            "rule": rule_of(clauses, [clauses.window]).encode(),
        }
    )
    kinds = {"at": "timestamp", "n": "integer", "_timestamp": "timestamp", "_corrupt_record": "string"}
    made = found.streamReader(struct({**kinds, CLOSE: "timestamp"}))
    first = made.latestOffset(made.initialOffset(), ALL)
    watermark(tmp_path, began)
    first = settled(made, first, lambda: write(began), clock)
    write(began + 9999, began + 70_000, None)
    assert made.latestOffset(first, ALL) == first
    write(began + 10_000)
    assert made.latestOffset(first, ALL) != first


def test_records_have_the_time_at_which_they_are_read(tmp_path: Path) -> None:
    """Also when the batch is repeated. When a period is over, a mark says so."""
    logs, began = Logs(tmp_path / "data"), int(time.time() * 1000)
    logs.write(numbers(0, 5))
    made, other = (reader(logs, tmp_path / "close", period="1,0") for _ in range(2))
    start = made.initialOffset()
    first = made.latestOffset(start, ALL)
    for again in (made, other):
        *read_rows, mark = rows(again, start, first)
        assert [row["value"] for row in read_rows] == numbers(0, 5)
        assert {row[CLOSE] for row in read_rows} == {None}
        assert {row[CLOCK] for row in read_rows} == {mark[CLOSE]}
        assert began <= mark[CLOSE].timestamp() * 1000 <= time.time() * 1000
    over = first
    while over == first:  # a millisecond
        over = made.latestOffset(first, ALL)
    (tick,) = rows(made, first, over)
    assert tick[CLOSE] > mark[CLOSE]
    assert tick[CLOCK] is None
    logs.write(numbers(5, 6))
    third = made.latestOffset(over, ALL)
    (record, mark) = rows(other, over, third)
    assert (record["value"], record[CLOCK]) == (b"5", mark[CLOSE])
    assert record[CLOCK] > tick[CLOSE]


def test_a_damaged_mark_is_none(tmp_path: Path) -> None:
    (tmp_path / "close").write_text("x")
    assert read_mark(str(tmp_path / "close")) == 0


def times(logs: Logs, partition: int, lo: int, hi: int) -> list[int]:
    batches = [b for split in plan(logs.log_dir(), {("t", partition): (lo, hi)}) for b in read(split, ["timestamp"])]
    return [at.as_py().timestamp() * 1000 for batch in batches for at in batch.column(0)]


@pytest.mark.parametrize("limit", [400, 1500, 6000])
def test_of_a_backlog_no_partition_is_read_further_in_time_than_what_another_one_leaves(
    tmp_path: Path, limit: int
) -> None:
    logs = Logs(tmp_path / "data", LogConfig(segment_bytes=2000, index_interval_bytes=100))
    logs.write(numbers(0, 300), partition=0, timestamp=NOW)  # one in each ms
    logs.write(numbers(0, 100), partition=1, timestamp=NOW + 150)
    for number in range(12):
        logs.write(numbers(number, number + 1), partition=2, timestamp=NOW + 25 * number)
    made = reader(logs, tmp_path / "close")
    at = made.initialOffset()
    ends = {str(p): end for p, end in enumerate((300, 100, 12))}
    batches = 0
    while at["t"] != ends:
        following = made.latestOffset(at, ReadMaxBytes(limit))
        assert following != at, "there is progress"
        taken = [t for p in range(3) for t in times(logs, p, at["t"][str(p)], following["t"][str(p)])]
        left = [t for p in range(3) for t in times(logs, p, following["t"][str(p)], ends[str(p)])[:1]]
        assert not left or max(taken) <= min(left)
        at, batches = following, batches + 1
    assert batches > 1
