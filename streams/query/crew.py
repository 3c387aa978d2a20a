"""The driver's worker processes, for large ticks of queries that need no JVM: backlogs, and work that is too heavy for
the driver's own process.

They start when first needed, and end after a while without work. If one dies, or is stopped because its task has run
for too long, only that tick fails.

Invariant: when `run` has ended, none of its tasks writes any more.
"""

from __future__ import annotations

import os
import pickle
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barnabas.streams.query.direct import Direct
from barnabas.streams.query.errors import TaskError, TooSlowError
from barnabas.streams.query.sink import Report
from barnabas.streams.query.tick import Tick
from barnabas.streams.query.work import Seconds, Watch, Worked
from barnabas.streams.query.worker import READY, Failure, Task

#: Workers that have been idle for this long end.
IDLE_SECONDS = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Worker:
    """A process that does one task at a time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "barnabas.streams.query.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.is_ready = False

    @property
    def stdout(self) -> Any:
        """The pipe with its answers."""
        return self.process.stdout

    def send(self, task: Task) -> None:
        """Send it a task. Raises TaskError if it has ended."""
        assert self.process.stdin is not None
        try:
            pickle.dump(task, self.process.stdin)
            self.process.stdin.flush()
        except OSError:
            raise self._ended() from None

    def answer(self) -> Any:
        """Its next message. Raises TaskError if it has ended."""
        try:
            return pickle.load(self.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise self._ended() from None

    def _ended(self) -> TaskError:
        status = self.process.wait()
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return TaskError(f"a worker of the driver {how}")

    def end(self) -> None:
        """Kill it. No work is lost."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:  # data that was not sent yet
                pass


class Crew:
    """At most `size` workers."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._workers: list[Worker] = []
        self._used_at = 0.0

    @property
    def is_up(self) -> bool:
        """Whether there are workers, or will be soon."""
        return bool(self._workers)

    def is_ready(self) -> bool:
        """Whether a tick would run at once. If not, workers are being started. Raises TaskError if none can be."""
        self._used_at = time.monotonic()
        self._workers = [worker for worker in self._workers if not worker.is_ready or worker.process.poll() is None]
        while len(self._workers) < self._size:
            self._workers.append(Worker())
        for worker in list(self._workers):
            if not worker.is_ready and _has_answers([worker], 0):
                self._welcome(worker)
        return all(worker.is_ready for worker in self._workers)

    def _welcome(self, worker: Worker) -> None:
        try:
            worker.is_ready = worker.answer() == READY
        except TaskError:
            self.end()
            raise

    def run(
        self, direct: Direct, tick: Tick, timeout: float, held: Callable[[Worked], None]
    ) -> tuple[list[Report], Worked | None]:
        """Run a tick. Returns what was done, and how long it worked if that took long; see `Job.run`.

        Raises TaskError with the reason if a task has failed, and TooSlowError if one has worked for `timeout` seconds.
        """
        while not self.is_ready():
            _has_answers([worker for worker in self._workers if not worker.is_ready], None)
        watch = Watch(self._cpu, timeout, self._kill, held)
        try:
            with watch:
                reports = self._all(direct, tick)
        except TaskError as error:
            self.end()
            if watch.why is not None:
                raise TooSlowError(watch.why, tick.bytes) from error
            raise
        self._used_at = time.monotonic()
        return reports, watch.worked

    def _all(self, direct: Direct, tick: Tick) -> list[Report]:
        waiting = [number for number, part in enumerate(tick.parts) if part.lo < part.hi][::-1]
        free, busy = list(self._workers), list[Worker]()
        reports: list[Report] = []
        while waiting or busy:
            while waiting and free:
                worker = free.pop()
                worker.send(Task(direct, tick, waiting.pop()))
                busy.append(worker)
            for worker in _has_answers(busy, None):
                answer = worker.answer()
                if isinstance(answer, Failure):
                    raise TaskError(answer.why)
                reports += answer
                busy.remove(worker)
                free.append(worker)
        return reports

    def look(self, at: float) -> None:
        """End workers that have been idle for long."""
        if self._workers and at - self._used_at > IDLE_SECONDS:
            self.end()

    def end(self) -> None:
        """End all of them."""
        for worker in self._workers:
            worker.end()
        self._workers = []

    def _kill(self) -> None:
        """Called from another thread. Code that waits for the workers' answers sees that they have ended."""
        for worker in self._workers:
            worker.process.kill()

    def _cpu(self) -> Seconds:
        return {f"process {pid}": used for pid in self._pids() if (used := _cpu_of(pid)) is not None}

    def _pids(self) -> list[int]:
        return [worker.process.pid for worker in self._workers]


def _has_answers(workers: list[Worker], timeout: float | None) -> list[Worker]:
    """The workers that have answered or ended. Waits up to `timeout` seconds for one, or forever if None."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.stdout, selectors.EVENT_READ, worker)
        return [key.data for key, _ in selector.select(timeout)]


def _cpu_of(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / _TICKS
