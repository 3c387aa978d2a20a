"""The limit of a batch of records is the work of its busiest task, not the time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.query.work import Busiest, Seconds, Watch, Worked, cpu_of
from compat_tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENT = 60.0
#: More CPU seconds than an honest task takes to get a worker and begin, even on a slow machine.
ROOMY = 5.0


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 50), min_size=2), min_size=1), st.floats(0, 1e6))
def test_the_busiest_is_the_one_that_used_the_most_since_it_was_first_seen(
    steps: dict[str, list[int]], before: float
) -> None:
    busiest = Busiest()
    for look in range(max(map(len, steps.values()))):
        busiest.see(float(look), {name: before + sum(used[: look + 1]) for name, used in steps.items()})
    assert busiest.seconds == pytest.approx(max(sum(used[1:]) for used in steps.values()), abs=1e-6)


def test_who_comes_later_counts_from_then_on() -> None:
    busiest = Busiest()
    busiest.see(0, {"a": 5.0})
    busiest.see(1, {"a": 5.5, "b": 100.0})
    busiest.see(2, {"b": 101.0})
    assert busiest.seconds == 1.0


def test_idle_is_who_has_tasks_that_use_nothing() -> None:
    busiest = Busiest()
    assert busiest.idle(7) == 0
    busiest.see(0, {"a": 1.0})
    busiest.see(10, {"a": 1.0})
    assert busiest.idle(10) == 10
    busiest.see(11, {})  # its tasks wait for those of others to end
    assert busiest.idle(12) == 1
    busiest.see(20, {"a": 1.5})
    assert busiest.idle(20) == 0


class Watched:
    """Records the calls of a watch."""

    def __init__(self, seen: Callable[[], Seconds], most: float, stop: Callable[[], None] = lambda: None) -> None:
        self.stopped, self.held = threading.Event(), threading.Event()
        self.watch = Watch(seen, most, self._stop, self._held)
        self.told: list[Worked] = []
        self._stop_jobs = stop

    def _stop(self) -> None:
        self.stopped.set()
        self._stop_jobs()

    def _held(self, worked: Worked) -> None:
        self.told.append(worked)
        self.held.set()


def test_what_works_is_stopped_and_what_waits_is_told_of_once() -> None:
    used = iter(range(1_000_000))
    working = Watched(lambda: {"a": float(next(used))}, 0.01)
    with working.watch:
        assert working.stopped.wait(PATIENT)
    assert working.watch.why == "a batch of records took more than 0.01 s of CPU time"

    looks, many = iter(range(1_000_000)), threading.Event()

    def little() -> Seconds:
        if next(looks) == 10:
            many.set()
        return {"a": 5.0}

    waiting = Watched(little, 0.02)
    with waiting.watch:
        assert waiting.held.wait(PATIENT)
    assert len(waiting.told) == 1
    assert waiting.told[0].seconds > waiting.told[0].cpu_seconds == 0


def test_what_never_does_anything_is_stopped_in_the_end() -> None:
    asleep = Watched(lambda: {"a": 5.0}, 0.01)
    with asleep.watch:
        assert asleep.stopped.wait(PATIENT)
    assert asleep.watch.why == "a batch of records did nothing for 0.1 s"


def run(spark: SparkSession, work: Callable[[Iterable[Any]], Iterator[Any]] | None, watched: Watched) -> Any:
    """Run a job that works under a watch."""
    spark.sparkContext.addJobTag("watched")
    try:
        with watched.watch:
            if work is None:  # in the JVM
                return spark.range(1 << 60).selectExpr("max(hash(id))").collect()
            return spark.range(0, 1, 1, 1).mapInArrow(work, "id bigint").collect()
    finally:
        spark.sparkContext.removeJobTag("watched")


def waiting_for(gate: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A task that waits until somebody opens and closes a FIFO."""

    def waits(batches: Iterable[Any]) -> Iterator[Any]:
        with open(gate) as opened:
            opened.read()
        yield from batches

    return waits


def watched_by(spark: SparkSession, most: float) -> Watched:
    return Watched(cpu_of(spark, "watched"), most, lambda: spark.sparkContext.cancelJobsWithTag("watched"))


@pytest.mark.parametrize("where", ["python", "jvm"])
def test_a_task_that_spins_is_stopped_wherever_it_does(spark: SparkSession, tmp_path: Path, where: str) -> None:
    worker = tmp_path / "worker"

    def spins(batches: Iterable[Any]) -> Iterator[Any]:
        worker.symlink_to(f"/proc/{os.getpid()}")
        while True:
            pass
        yield from batches

    watched = watched_by(spark, 0.5)
    with pytest.raises(Exception, match="cancelled"):
        run(spark, spins if where == "python" else None, watched)
    assert watched.watch.why == "a batch of records took more than 0.5 s of CPU time"
    until(lambda: not worker.exists(), "Spark has ended the worker", PATIENT)


def test_a_task_that_waits_is_not_stopped(spark: SparkSession, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)

    watched = watched_by(spark, ROOMY)

    def opens() -> None:
        watched.held.wait(PATIENT)
        os.close(os.open(gate, os.O_RDWR))  # without waiting for a reader

    opener = threading.Thread(target=opens)
    opener.start()
    try:
        assert [row[0] for row in run(spark, waiting_for(gate), watched)] == [0]
    finally:
        watched.held.set()  # no task may be left for the tests that follow
        opener.join()
    assert watched.watch.why is None
    assert watched.watch.worked is not None


def test_the_work_of_other_jobs_is_not_this_ones(spark: SparkSession, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)
    others = threading.Thread(target=spark.range(0, 1, 1, 1).mapInArrow(waiting_for(gate), "id bigint").collect)
    others.start()
    with open(gate, "w"):  # their task runs now
        assert cpu_of(spark, "watched")() == {}
    others.join()
