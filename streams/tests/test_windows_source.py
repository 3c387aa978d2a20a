"""The source of a stream: marks in its offsets, and a backlog that is read in the order of time."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import StructType

from barnabas.storage.config import LogConfig
from barnabas.streams.tests.support import NOW, Logs, numbers
from barnabas.streams.tests.windows_support import NOWHERE
from barnabas.streams.wal import plan, read
from barnabas.streams.windows import source
from barnabas.streams.windows.source import (
    QUIET_SECONDS,
    REST_SECONDS,
    MarkedReader,
    MarkPartition,
    StreamDataSource,
    read_mark,
    write_mark,
)
from barnabas.streams.windows.watched import CLOCK, CLOSE

ALL = ReadAllAvailable()


def reader(logs: Logs, close_file: Path, rate: int = 0, period: str = "") -> MarkedReader:
    options = {"path": str(logs.path), "topics": "t", "bootstrap.servers": NOWHERE, "startingOffsets": "earliest"}
    data_source = StreamDataSource(
        {**options, "closeFile": str(close_file), "bytesPerSecond": str(rate), "period": period}
    )
    fields = ("key binary", "value binary", "timestamp timestamp", "offset bigint", f"{CLOSE} timestamp")
    schema = StructType.fromJson(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": {"bigint": "long"}.get(kind, kind), "nullable": name != "offset", "metadata": {}}
                for name, kind in map(str.split, fields)
            ],
        }
    )
    return data_source.streamReader(schema)


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
    for again in (made, reader(logs, tmp_path / "gone")):  # what the file says now is of no account
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


def test_a_quiet_source_rests_before_it_looks_until_something_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, rested = [100.0], list[float]()
    monkeypatch.setattr(source, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=rested.append))
    logs = Logs(tmp_path / "data")
    logs.write(numbers(0, 5))
    made = reader(logs, tmp_path / "close")
    at = made.latestOffset(made.initialOffset(), ALL)
    clock[0] += QUIET_SECONDS - 0.1
    assert (made.latestOffset(at, ALL), rested) == (at, [])
    clock[0] += 0.1
    assert (made.latestOffset(at, ALL), rested) == (at, [REST_SECONDS])
    logs.write(numbers(5, 6))
    following = made.latestOffset(at, ALL)
    assert (following != at, len(rested)) == (True, 2)
    assert (made.latestOffset(following, ALL), len(rested)) == (following, 2)
    clock[0] += QUIET_SECONDS
    write_mark(str(tmp_path / "close"), NOW)
    marked = made.latestOffset(following, ALL)
    assert (marked != following, len(rested)) == (True, 3)
    assert (made.latestOffset(marked, ALL), len(rested)) == (marked, 3)


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
