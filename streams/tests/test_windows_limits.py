"""How fast streams may read and write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadMaxBytes

from barnabas.client.produce import Batch
from barnabas.storage.config import LogConfig
from barnabas.streams.query.catalyst import jvm_of, session_state
from barnabas.streams.tests.support import NOW, Logs, numbers
from barnabas.streams.tests.test_windows_source import reader
from barnabas.streams.windows import sink, source
from barnabas.streams.windows.limits import MAX_HOLD_SECONDS, MAX_STATE_MEMORY_MB, Limits, Pace
from barnabas.streams.windows.session import streams_session
from barnabas.wire.aliases import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A, B = ("t", 0), ("t", 1)


class Clock:
    """A clock that moves on when a task sleeps."""

    def __init__(self) -> None:
        self.now, self.slept = 1000.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def pace(self, limits: Limits) -> Pace:
        return Pace(limits, lambda: self.now, self.sleep)


def test_a_writer_waits_for_each_partition_and_between_requests() -> None:
    clock = Clock()
    pace = clock.pace(Limits(writes_per_second=10, bytes_per_second=1000))
    pace.begin()
    pace.wait({A: 500, B: 10})
    assert clock.slept == []
    pace.wait({B: 10})  # a tenth of a second after the previous request
    pace.wait({A: 1})
    assert clock.slept == pytest.approx([0.1, 0.4])
    clock.now += 60
    pace.wait({A: 1})
    assert len(clock.slept) == 2, "it has waited for long enough"


def test_no_limit_holds_nobody_and_a_batch_is_held_for_a_minute_at_most() -> None:
    clock = Clock()
    free, slow = clock.pace(Limits(0, 0)), clock.pace(Limits(0, 1))
    for _ in range(3):
        free.wait({A: 1 << 30})
    assert clock.slept == []
    slow.begin()
    for _ in range(3):
        slow.wait({A: 50})
    assert sum(clock.slept) == MAX_HOLD_SECONDS
    slow.begin()
    slow.wait({A: 1})
    assert sum(clock.slept) > MAX_HOLD_SECONDS


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 2000), st.booleans()), min_size=2, max_size=40))
def test_over_any_time_no_more_is_written_than_the_limits_and_one_request(steps: list[tuple[int, int, bool]]) -> None:
    clock = Clock()
    pace = clock.pace(Limits(writes_per_second=20, bytes_per_second=100_000))
    sent: list[tuple[float, int]] = []
    for size, pause_ms, begins in steps:
        if begins:
            pace.begin()
        clock.now += pause_ms / 1000
        pace.wait({A: size})
        sent.append((clock.now, size))
    for first in range(len(sent)):
        for last in range(first + 1, len(sent)):
            took = sent[last][0] - sent[first][0] + 1e-6
            assert last - first <= took * 20
            assert sum(size for _, size in sent[first:last]) <= took * 100_000


def test_the_sink_asks_before_each_request_and_over_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the bytes that it sends to each partition."""
    asked: list[dict[TopicPartition, int]] = []
    sent: list[list[Batch]] = []

    def written(_: object, __: str, batches: list[Batch], **___: object) -> dict[TopicPartition, SimpleNamespace]:
        sent.append(batches)
        return {(each.topic, each.partition): SimpleNamespace(error_code=0, error_message=None) for each in batches}

    class Watched(Pace):
        def wait(self, sizes: Mapping[TopicPartition, int]) -> None:
            assert len(asked) == len(sent)
            asked.append(dict(sizes))

    monkeypatch.setattr(sink, "_paces", {})
    monkeypatch.setattr(sink, "Pace", Watched)
    monkeypatch.setattr(sink, "Cluster", lambda _: SimpleNamespace())
    monkeypatch.setattr(sink, "write", written)
    writer = sink.Writer("nowhere", {0: sink.Target("t", 2, 4000)}, "id", 1, 0, Limits(7, 8, 9))
    rows = [{"stream": 0, "key": f"k{n}".encode(), "value": b"v" * 100, "timestamp": NOW} for n in range(100)]
    kinds = [("stream", pa.int32()), ("key", pa.binary()), ("value", pa.binary()), ("timestamp", pa.timestamp("ms"))]
    for _ in range(2):
        (told,) = writer(iter([pa.RecordBatch.from_pylist(rows, schema=pa.schema(kinds))]))
        assert told.to_pylist() == [{"topic": "t", "written": 100}]
    assert len(asked) > 2
    assert asked == [{(each.topic, each.partition): len(each.data) for each in batches} for batches in sent]
    assert len(sink._paces) == 1


def test_a_source_is_read_no_faster_than_it_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    times = {"monotonic": lambda: clock.now, "sleep": clock.sleep, "thread_time": lambda: 0.0}
    monkeypatch.setattr(source, "time", SimpleNamespace(**times))
    logs = Logs(tmp_path / "data", LogConfig(index_interval_bytes=100))
    logs.write(numbers(0, 400), each=5)
    size = sum(path.stat().st_size for path in (tmp_path / "data").glob("t-0/*.log"))
    made = reader(logs, tmp_path / "close", rate=1000)
    at, began, looks = made.initialOffset(), clock.now, 0
    while at["t"]["0"] < 400:
        following = made.latestOffset(at, ReadMaxBytes(1 << 20))
        looks += following == at
        at, clock.now = following, clock.now + 0.1
    assert looks > 0
    assert (clock.now - began) * 1000 >= size - 1500
    assert (clock.now - began) * 1000 <= size * 1.5 + 1500


def test_spark_knows_the_bound_of_the_memory_for_states(spark: SparkSession) -> None:
    """Spark silently accepts settings whose names it does not know."""
    session = streams_session(spark)
    state = jvm_of(session).org.apache.spark.sql.execution.streaming.state
    found = state.RocksDBConf.apply(state.StateStoreConf.apply(session_state(session).conf()))
    assert (found.boundedMemoryUsage(), found.totalMemoryUsageMB()) == (True, MAX_STATE_MEMORY_MB)
