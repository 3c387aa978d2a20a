"""Measures the CPU time of a batch of records, and stops a batch that takes too much.

A limit by the clock would end honest queries on a machine that is busy with something else. So CPU time counts: that of
the task that has used the most, in the JVM or in a Python worker. A batch that waits for its turn uses none.

    local master   threads of the JVM that run tasks of the batch, and Spark's Python workers (those of streams, too)
    a cluster      the clock: the CPU of its executors is not known here
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from barnabas.streams.doors import warn_shut
from barnabas.streams.query.catalyst import SHUT, jvm_of, status_tracker
from barnabas.streams.query.session import template_process

#: Most batches are done before the first look; after it, the watch looks at this interval.
_FIRST_LOOK_SECONDS, _LOOK_SECONDS = 1.0, 0.5
#: A task that uses less CPU between two looks counts as idle.
_LEAST_SECONDS = 0.005
#: A batch may be idle for this many times its working time; after that, a function is assumed to wait forever.
_PATIENCE = 10
_TASK = re.compile(r'"Executor task launch worker for task [^"]* in stage (\d+)\.\d+ \(TID (\d+)\)"[^\n]*? Id=(\d+)')
_TICKS = os.sysconf("SC_CLK_TCK")

#: CPU seconds by the name of each thread or process that may work for a batch; empty while no task of it runs.
Seconds = Mapping[str, float]


class Worked(NamedTuple):
    """A batch that took longer than it may work: its elapsed seconds, and the CPU seconds of its busiest task."""

    seconds: float
    cpu_seconds: float


class Busiest:
    """The CPU time that the busiest one has used since it was first seen."""

    def __init__(self) -> None:
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self.seconds = 0.0
        self._active_at: float | None = None

    def see(self, now: float, found: Seconds) -> None:
        """Note the CPU seconds used so far."""
        active = any(used - self._last.get(name, used) >= _LEAST_SECONDS for name, used in found.items())
        if active or not found or self._active_at is None:
            self._active_at = now
        for name, used in found.items():
            self._last[name] = used
            self.seconds = max(self.seconds, used - self._first.setdefault(name, used))

    def idle(self, now: float) -> float:
        """For how long there have been tasks, all of them idle."""
        return 0.0 if self._active_at is None else now - self._active_at


class Watch:
    """Inside this context, the jobs with a tag may work for `most` seconds; after that, `stop` is called.

    `held` is called once, from another thread, when they have taken longer than that by the clock alone.
    """

    def __init__(
        self, seen: Callable[[], Seconds], most: float, stop: Callable[[], None], held: Callable[[Worked], None]
    ) -> None:
        self._seen, self._most, self._stop, self._held = seen, most, stop, held
        self._done = threading.Event()
        #: Why the jobs were stopped, if they were.
        self.why: str | None = None
        #: Their work, if they took long but worked less than that.
        self.worked: Worked | None = None

    def __enter__(self) -> Watch:
        self._began = time.monotonic()
        threading.Thread(target=self._look, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def _look(self) -> None:
        busiest = Busiest()
        wait = min(_FIRST_LOOK_SECONDS, self._most)
        while not self._done.wait(wait):
            now = time.monotonic()
            busiest.see(now, self._seen())
            self.why = self._why(busiest, now)
            if self.why is not None:
                self._stop()
                return
            if now - self._began > self._most:
                is_new, self.worked = self.worked is None, Worked(now - self._began, busiest.seconds)
                if is_new:
                    self._held(self.worked)
            wait = min(_LOOK_SECONDS, self._most)

    def _why(self, busiest: Busiest, now: float) -> str | None:
        if busiest.seconds > self._most:
            return f"a batch of records took more than {self._most:g} s of CPU time"
        if busiest.idle(now) > _PATIENCE * self._most:
            return f"a batch of records did nothing for {_PATIENCE * self._most:g} s"
        return None


def cpu_of(spark: SparkSession, tag: str) -> Callable[[], Seconds]:
    """A function that returns the CPU time of all that may work for the jobs with a tag."""

    def clock() -> Seconds:
        return {"clock": time.monotonic()}

    def local() -> Seconds:
        try:
            threads = _task_threads(spark, tag)
            return {**threads, **_workers(_parents_of_workers(spark))} if threads else {}
        except (OSError, *SHUT) as error:
            if not isinstance(error, Py4JError):
                warn_shut("the CPU time of Spark's tasks", "a batch of records is limited by the clock", error)
            return clock()

    return local if str(spark.sparkContext.master).startswith("local") else clock


def _task_threads(spark: SparkSession, tag: str) -> dict[str, float]:
    """The CPU seconds of the JVM threads that run tasks of the jobs with a tag."""
    jvm, tracker = jvm_of(spark), status_tracker(spark)
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForTag(tag)]
    stages = {str(stage) for job in jobs if job.isDefined() for stage in job.get().stageIds()}
    threads = getattr(jvm, "java.lang.management.ManagementFactory").getThreadMXBean()
    # All in one text, because each call to the JVM takes time.
    told = getattr(jvm, "scala.runtime.ScalaRunTime").stringOf(threads.getThreadInfo(threads.getAllThreadIds()))
    found = {}
    for stage, task, number in _TASK.findall(told):
        used = threads.getThreadCpuTime(int(number)) if stage in stages else -1
        if used >= 0:
            found[f"task {task}"] = used / 1e9
    return found


def _parents_of_workers(spark: SparkSession) -> list[int]:
    """The processes among whose descendants are all of Spark's Python processes."""
    jvm = int(getattr(jvm_of(spark), "java.lang.ProcessHandle").current().pid())
    template = template_process()
    return [jvm] if template is None else [jvm, template]


def _workers(of: list[int]) -> dict[str, float]:
    """The CPU seconds of the descendants of these processes, except this one."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        process = int(path.parent.name)
        parents[process], used[process] = int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICKS
    below, wanted = set(of), set(of)
    while wanted:
        wanted = {process for process, parent in parents.items() if parent in wanted and process != os.getpid()} - below
        below |= wanted
    return {f"process {process}": used[process] for process in below.difference(of)}
