"""Ticks in the driver's own process: their limits of time and memory, and the ticks that run elsewhere."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.storage.config import LogConfig
from barnabas.streams.query import direct as direct_module
from barnabas.streams.query import inline, plain
from barnabas.streams.query.direct import Direct, direct_of
from barnabas.streams.query.facts import Facts
from barnabas.streams.query.inline import MAX_BATCH, NOTE_FILE, Budget, Inline
from barnabas.streams.query.sink import Report
from barnabas.streams.query.tick import Part, Tick
from barnabas.streams.tests.query_support import definition, parts_of
from barnabas.streams.tests.support import Logs
from barnabas.streams.wal import LogDir, TooMuchError, WalError, plan, read
from barnabas.wire.compression import CompressionType


class Stub:
    """Replaces a task."""

    def __init__(self, run: Callable[[int], None] = lambda _: None) -> None:
        self.grows, self.adds, self._run = 1.0, 0.0, run

    def run(self, tick: Tick, number: int, *, gauge: Budget) -> list[Report]:
        self._run(number)
        return [Report(0, number, 1, 0, tick.parts[number].hi)]


def tick(*ranges: tuple[int, int], topic_id: str = "first") -> Tick:
    return Tick(
        1,
        [
            Part("s", number, lo, hi, [("path", 0, 1, lo, hi, topic_id, "", ())], [lo])
            for number, (lo, hi) in enumerate(ranges)
        ],
    )


def run(here: Inline, stub: Stub, at: Tick, topics: list[str] | None = None) -> list[Report]:
    return here.run(cast("Direct", stub), at, topics or ["q"])


def test_all_tasks_that_have_something_to_read_are_run(tmp_path: Path) -> None:
    here = Inline(str(tmp_path))
    assert here.may_run(tick((0, 5), (3, 3), (7, 9)), ["q"])
    found = run(here, Stub(), tick((0, 5), (3, 3), (7, 9)))
    assert [(report.task, report.next) for report in found] == [(0, 5), (2, 9)]


def test_a_budget_counts_rows_and_what_every_query_makes_of_them() -> None:
    offsets, sizes = pa.array([7, 8]), pa.array([40, 60])
    Budget(1, 0, 100, 200).take(offsets, sizes)
    budget = Budget(1, 50, 1000, 500)
    budget.take(offsets, sizes)
    with pytest.raises(TooMuchError, match="the records before offset 9"):
        budget.take(offsets, sizes)
    assert budget.is_outgrown
    Budget(1, 0, 0, 0).take(pa.array([], pa.int64()), pa.array([], pa.int64()))
    heavy = Budget(1, 0, 99, 1000)
    with pytest.raises(TooMuchError):
        heavy.take(offsets, sizes)
    assert not heavy.is_outgrown


def test_what_is_too_much_is_for_others_from_then_on(tmp_path: Path) -> None:
    def heavy(_: int) -> None:
        raise TooMuchError("more")

    here = Inline(str(tmp_path))
    with pytest.raises(TooMuchError):
        run(here, Stub(heavy), tick((5, 9), (2, 2)))
    assert not here.may_run(tick((5, 6), (2, 2)), ["q"])
    assert not here.may_run(tick((8, 20), (2, 2)), ["another"])
    assert here.may_run(tick((9, 20), (0, 3)), ["q"])


def test_a_topic_of_the_same_name_begins_anew(tmp_path: Path) -> None:
    here = Inline(str(tmp_path))
    here.leave(tick((5, 9)))
    assert not here.may_run(tick((0, 9)), ["q"])
    assert here.may_run(tick((0, 9), topic_id="again"), ["q"])


def test_what_is_known_of_topics_that_come_and_go_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "MOST_LEFT", 3)
    here = Inline(str(tmp_path))
    for number in (0, 1, 2, 0, 3):
        here.leave(tick((5, 9), topic_id=str(number)))
    may = [here.may_run(tick((5, 9), topic_id=str(number)), ["q"]) for number in range(4)]
    assert may == [False, True, False, False]


def test_records_over_which_a_driver_has_ended_are_not_read_in_the_next_one(tmp_path: Path) -> None:
    """However the driver ended, the next one does not read these records in its own process."""

    class KilledError(BaseException):
        pass

    noted: list[bytes] = []

    def dies(number: int) -> None:
        noted.append((tmp_path / NOTE_FILE).read_bytes())

    run(Inline(str(tmp_path)), Stub(dies), tick((0, 5), (3, 3), (7, 9)))
    assert (tmp_path / NOTE_FILE).read_bytes() == b""  # nothing is left of a completed tick
    (tmp_path / NOTE_FILE).write_bytes(noted[0])
    following = Inline(str(tmp_path))
    assert not following.may_run(tick((4, 6)), ["q"])
    assert not following.may_run(tick((5, 6), (0, 9), (8, 9)), ["q"])
    assert following.may_run(tick((5, 6), (0, 9), (9, 10)), ["q"])
    run(following, Stub(), tick((5, 6)))
    assert not following.may_run(tick((4, 6)), ["q"])


@pytest.mark.parametrize("noted", [b"", b"[[", b"{}", b'[["s",0]]'])
def test_a_note_that_is_none_is_no_matter(tmp_path: Path, noted: bytes) -> None:
    (tmp_path / NOTE_FILE).write_bytes(noted)
    assert Inline(str(tmp_path)).may_run(tick((0, 5)), ["q"])


def test_without_a_place_for_the_note_it_goes_on(tmp_path: Path) -> None:
    here = Inline(str(tmp_path / "gone"))
    assert [report.next for report in run(here, Stub(), tick((0, 5)))] == [5]


def test_a_query_whose_small_ticks_are_dear_is_for_others_until_it_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Inline(str(tmp_path))
    seconds = itertools.count(0.0, inline.MAX_CPU_SECONDS + 0.1)
    monkeypatch.setattr(time, "thread_time", lambda: next(seconds))
    run(here, Stub(), tick((0, 5)), ["a", "b"])
    assert not here.may_run(tick((5, 6)), ["b", "c"])
    assert here.may_run(tick((5, 6)), ["c"])
    here.forget(["b"])
    assert here.may_run(tick((5, 6)), ["b", "c"])


class Weighing(Stub):
    """Replaces the task of a query that Spark evaluates, with rows of this weight."""

    def __init__(self, weight: int, grows: float = 1) -> None:
        super().__init__()
        self.weight, self.grows = weight, grows

    def run(self, tick: Tick, number: int, *, gauge: Budget) -> list[Report]:
        gauge.take(pa.array([tick.parts[number].lo]), pa.array([self.weight]))
        return super().run(tick, number, gauge=gauge)


def test_a_query_that_spark_evaluates_may_have_more_rows_once_its_cost_is_known(tmp_path: Path) -> None:
    here = Inline(str(tmp_path))
    cpu = itertools.count(0.0, inline.MAX_CPU_SECONDS / 10)

    def evaluate(weight: int, at: Tick, grows: float = 1) -> None:
        here.run(cast("Direct", Weighing(weight, grows)), at, ["q"], lambda: next(cpu))

    with pytest.raises(TooMuchError):
        evaluate(inline.FIRST_TRUST + 1, tick((0, 1)))
    assert here.may_run(tick((1, 2)), ["q"])  # only these records are left to others
    evaluate(inline.FIRST_TRUST, tick((1, 2)))
    evaluate(2 * inline.FIRST_TRUST, tick((2, 3)))
    with pytest.raises(TooMuchError):  # whatever it makes of these few records, a job must run it
        evaluate(inline.FIRST_TRUST, tick((3, 4)), inline.MAX_TRUST / inline.FIRST_TRUST)
    assert not here.may_run(tick((4, 5)), ["q"])


def test_the_cpu_time_of_sparks_jvm_counts(tmp_path: Path) -> None:
    here = Inline(str(tmp_path))
    cpu = itertools.count(0.0, inline.MAX_CPU_SECONDS + 0.1)
    here.run(cast("Direct", Stub()), tick((0, 5)), ["q"], lambda: next(cpu))
    assert not here.may_run(tick((5, 6)), ["q"])


# --- what strangers may send ------------------------------------------------------------------------------------------

BIG = LogConfig(segment_bytes=64 << 20)
WIDE = ", ".join(f"column_{number} DOUBLE" for number in range(1500))
LISTS = "a ARRAY<STRUCT<" + ", ".join(f"b{number}: DOUBLE" for number in range(100)) + ">>, c STRING"


def nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    class Writer:
        def __init__(self, *_: Any) -> None:
            pass

        def results(self, *_: Any) -> None:
            raise AssertionError("results of records that are too much")

    monkeypatch.setattr(direct_module, "Writer", Writer)


@pytest.mark.parametrize(
    ("schema", "query", "values", "codec"),
    [
        pytest.param(WIDE, "SELECT * FROM s", [b"{}"] * 12_000, CompressionType.NONE, id="wide schema"),
        pytest.param("c STRING", "SELECT * FROM s", [b" " * (12 << 20)], CompressionType.ZSTD, id="bomb"),
        pytest.param(LISTS, "SELECT c FROM s", [b'{"a":[' + b"{}," * 40_000 + b"0]}"], CompressionType.NONE, id="list"),
    ],
)  # fmt: skip
def test_records_that_become_much_more_than_their_bytes_are_not_read_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: str, query: str, values: list[bytes | None], codec: int
) -> None:
    nothing_is_written(monkeypatch)
    logs = Logs(tmp_path / "data", BIG)
    logs.write(values, "s", each=len(values), codec=codec)
    made = definition("q", query, schema)
    found = plain.facts(query, "s", made.plan.values)
    assert isinstance(found, Facts)
    assert found.simple is not None
    direct = direct_of("", [made], [found], [found.simple])
    at = Tick(1, parts_of(logs, 1))
    assert at.bytes <= inline.SMALL_BYTES  # so that it would be run here
    here = Inline(str(tmp_path))
    with pytest.raises(TooMuchError):
        here.run(direct, at, ["q"])
    assert not here.may_run(at, ["q"])


def test_a_batch_is_not_decompressed_beyond_what_its_reader_wants(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data", BIG)
    logs.write([json.dumps({"x": "y" * MAX_BATCH}).encode()], codec=CompressionType.ZSTD)
    log_dir = LogDir(logs.path)
    (split,) = plan(log_dir, log_dir.ranges(log_dir.partitions("t")))
    assert split.end - split.start < 10_000
    with pytest.raises(TooMuchError, match=f"more than {MAX_BATCH} bytes"):
        list(read(split, ["value"], most=MAX_BATCH))
    (batch,) = read(split, ["value"])
    assert len(batch.column("value")[0].as_py()) > MAX_BATCH
    assert not issubclass(TooMuchError, WalError)
