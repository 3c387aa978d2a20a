"""Worker processes of the driver: their tasks, and their ends."""

from __future__ import annotations

import math
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.query.crew import Crew, Worker
from barnabas.streams.query.direct import Direct
from barnabas.streams.query.errors import MalformedRecordError, TaskError, TooSlowError
from barnabas.streams.query.sink import Report
from barnabas.streams.query.tick import Part, Tick

TICK = Tick(1, [Part("s", p, 0, 10 * (p != 1), [], [0]) for p in range(4)])


class Stub:
    """Replaces a task: it does what its name says."""

    def __init__(self, what: str) -> None:
        self.what = what

    def run(self, tick: Tick, number: int) -> list[Report]:
        if self.what == "fail":
            raise MalformedRecordError("s-0: the record at offset 3 does not fit: why")
        if self.what == "die" and number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        while self.what == "spin" and number == 3:
            pass
        print("what a library says")
        return [Report(0, number, os.getpid(), 0, tick.parts[number].hi)]


def run(crew: Crew, what: str, timeout: float = 60.0) -> list[Report]:
    reports, worked = crew.run(cast("Direct", Stub(what)), TICK, timeout, lambda _: None)
    assert worked is None
    return reports


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    made = Crew(2)
    yield made
    made.end()


def test_tasks_with_something_to_read_are_done_by_as_many_processes(crew: Crew) -> None:
    found = run(crew, "work")
    assert sorted((report.task, report.next) for report in found) == [(0, 10), (2, 10), (3, 10)]
    pids = {report.written for report in found}
    assert os.getpid() not in pids
    assert {report.written for report in run(crew, "work")} | pids == set(crew._pids())
    assert len(crew._pids()) == 2


def test_what_fails_in_one_is_told_and_all_of_the_tick_has_ended(crew: Crew) -> None:
    with pytest.raises(TaskError) as caught:
        run(crew, "fail")
    assert str(caught.value) == "MalformedRecordError: s-0: the record at offset 3 does not fit: why"
    assert crew._pids() == []  # the others were ended, or might still write


def test_one_that_is_killed_costs_this_tick_and_no_other(crew: Crew) -> None:
    with pytest.raises(TaskError, match="a worker of the driver was ended by signal 9"):
        run(crew, "die")
    assert len(run(crew, "work")) == 3


def test_one_that_dies_between_two_ticks_costs_nothing(crew: Crew) -> None:
    assert len(run(crew, "work")) == 3
    process = crew._workers[0].process
    process.kill()
    process.wait()
    assert len(run(crew, "work")) == 3


def test_one_that_works_for_too_long_is_stopped(crew: Crew) -> None:
    with pytest.raises(TooSlowError, match=r"more than 0\.5 s of CPU time"):
        run(crew, "spin", 0.5)
    assert crew._pids() == []


def test_they_end_when_nobody_has_needed_them_for_long(crew: Crew) -> None:
    run(crew, "work")
    crew.look(0.0)
    assert len(crew._pids()) == 2
    workers = list(crew._workers)
    crew.look(math.inf)
    assert crew._pids() == []
    assert all(worker.process.returncode is not None for worker in workers)


def test_where_none_starts_it_is_told_and_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    popen = subprocess.Popen
    starts: list[Any] = []

    def broken(command: list[str], **options: Any) -> Any:
        starts.append(command)
        return popen(["/bin/false"], **options)

    monkeypatch.setattr(subprocess, "Popen", broken)
    with pytest.raises(TaskError, match="ended with status 1"):
        run(Crew(2), "work")
    assert len(starts) == 2
    worker = Worker()
    worker.process.wait()
    worker.end()
