"""A batch closes windows by the records that it reads itself, with the results that Spark gives in two batches."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.tests.support import NOW, Logs
from barnabas.streams.tests.windows_support import Noting, Run, in_order
from barnabas.streams.windows import batches, one_batch
from barnabas.streams.windows.session import streams_session
from barnabas.wire.queries.plan import Values
from compat_tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = Values(format="json", schema="device STRING, n INT, ts TIMESTAMP")
BEGAN, MINUTE, PORTIONS = NOW // 60_000 * 60_000, 60_000, 4
SUMS = "{} SELECT _wstart, device, count(*) AS c, sum(n) AS s FROM sensors PARTITION BY device INTERVAL({}) {}"
PLAIN = SUMS.format("AS", "10s", "")


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return streams_session(spark)


class Steady(Noting):
    """A query that runs on, with something to do after each batch, while Spark waits."""

    def __init__(self, *args: Any, each: Callable[[int], None]) -> None:
        super().__init__(*args, each=each)
        self.is_steady = True

    def ran(self, is_done: Callable[[], bool]) -> None:
        """Run it until something is so, and its last batch is complete."""
        query = self.start()
        checkpoint = self.folder.checkpoint

        def is_complete() -> bool:
            assert query.exception() is None, query.exception()
            done = batches.last_batch(checkpoint, batches.COMMITS)
            return is_done() and done == batches.last_batch(checkpoint) and not batches.owed_watermark_ms(checkpoint)

        try:
            until(is_complete, "all is read", 180.0)
        finally:
            query.stop()


def write(logs: Logs, at: int, partition: int, *, device: str = "a", n: object = 1, own: int | None = None) -> None:
    """A record with an event time, and its own time if that is another."""
    moment = datetime.fromtimestamp(at / 1000, UTC).isoformat()
    value = json.dumps({"device": device, "n": n, "ts": moment}).encode()
    logs.write([value], "sensors", partition, timestamp=at if own is None else own)


def put(logs: Logs, portion: int) -> None:
    """A minute of records in any order, and one that closes their windows."""
    moments, began = random.Random(portion), BEGAN + MINUTE * portion
    for number in range(30):
        write(logs, began + moments.randrange(50_000), number % 2, device=moments.choice("ab"), n=number)
    write(logs, began + MINUTE - 1, 1)


def starts(rows: list[tuple[str | None, dict[str, Any], Any]]) -> set[int]:
    """When the windows of results began, in ms."""
    return {int(datetime.fromisoformat(value["_wstart"]).timestamp() * 1000) for _, value, _ in rows}


def in_two_batches(session: SparkSession, logs: Logs, folder: Path, text: str) -> list[dict[str, Any]]:
    """What Spark gives by itself."""
    plain = Run(session, logs.path, folder, text, VALUES)
    plain.start()
    return plain.results()


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        SUMS.format("PARALLELISM 2 EVENT_TIME ts WATERMARK 5s AS", "20s", "SLIDING(10s)"),
        SUMS.format("AS", "10s", "FILL(LINEAR)"),
    ],
)
def test_a_batch_closes_the_windows_that_its_records_close(session: SparkSession, tmp_path: Path, text: str) -> None:
    logs = Logs(tmp_path / "data")
    put(logs, 0)
    made = Steady(session, logs.path, tmp_path, text, VALUES, each=lambda batch: _next(logs, batch))
    made.ran(lambda: len(made.batches) >= PORTIONS)
    assert list(made.batches) == list(range(PORTIONS)), "a batch for each portion, and none without records"
    for batch in range(1, PORTIONS):  # before the first one Spark was not prepared
        assert BEGAN + MINUTE * batch in starts(made.batches[batch])
    found = in_order(value for rows in made.batches.values() for _, value, _ in rows)
    assert found == in_two_batches(session, logs, tmp_path / "plain", text)


def _next(logs: Logs, batch: int) -> None:
    if batch + 1 < PORTIONS:
        put(logs, batch + 1)


def test_batches_of_an_older_checkpoint_close_the_same_windows_again(session: SparkSession, tmp_path: Path) -> None:
    logs, until_now = Logs(tmp_path / "data"), 2
    put(logs, 0)

    def each(batch: int) -> None:
        if batch + 1 != until_now and batch + 1 < PORTIONS:
            put(logs, batch + 1)

    made = Steady(session, logs.path, tmp_path, PLAIN, VALUES, each=each)
    made.ran(lambda: len(made.batches) >= until_now)
    again = Steady(session, logs.path, tmp_path / "again", PLAIN, VALUES, each=lambda _: None)
    made.folder.copy_to(again.folder)
    put(logs, until_now)  # the next start reads it before Spark is prepared
    made.ran(lambda: len(made.batches) >= PORTIONS)
    assert again.folder.make_again(max(made.batches) + 1, made.noted) == len(made.batches) - until_now
    again.ran(lambda: max(again.batches, default=0) >= max(made.batches))
    assert again.batches == {batch: rows for batch, rows in made.batches.items() if batch >= until_now}
    for batch, text in again.noted.items():
        assert batches.watermark_ms(text) == batches.watermark_ms(made.noted[batch])
        assert batches.source_offset(text) == batches.source_offset(made.noted[batch])


def test_what_moves_no_watermark_closes_no_window(session: SparkSession, tmp_path: Path) -> None:
    """Malformed records, and records that are too far ahead. Late ones are late by the batch before."""
    logs, text = Logs(tmp_path / "data"), SUMS.format("EVENT_TIME ts AS", "10s", "")
    write(logs, BEGAN, 0)

    def each(batch: int) -> None:
        if batch == 0:
            write(logs, BEGAN + 25_000, 1)
            write(logs, BEGAN + 5000, 0)  # older than the watermark of this batch, but not of the one before
            write(logs, BEGAN + 45_000, 0, n="none", own=BEGAN + 25_000)
            write(logs, BEGAN + 10 * MINUTE, 1, own=BEGAN + 25_000)
        elif batch == 1:
            write(logs, BEGAN + 9000, 0)
            write(logs, BEGAN + 27_000, 0)
            write(logs, BEGAN + 31_000, 1)

    made = Steady(session, logs.path, tmp_path, text, VALUES, each=each)
    made.ran(lambda: len(made.batches) >= 3)
    rows = [value for batch in sorted(made.batches) for _, value, _ in made.batches[batch]]
    assert [(int(value["_wstart"][17:19]) - BEGAN % MINUTE // 1000, value["c"]) for value in rows] == [(0, 2), (20, 2)]


@pytest.mark.door
def test_with_another_spark_a_result_takes_two_batches(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(one_batch, "_made", {})
    monkeypatch.setattr(one_batch, "_SOURCE", one_batch._SOURCE.replace("MinWatermark", "NoSuchPolicy"))
    query: Any = SimpleNamespace(_jsq=None)
    assert not one_batch.use_foreseen(session, query)
    assert any("a result takes two batches of Spark" in message for message in caplog.messages)
