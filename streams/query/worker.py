"""A process of the crew, `python -m barnabas.streams.query.worker`: tasks come in on standard input, one at a time.

Driver and worker exchange pickles, on pipes that no other process has. The worker ends when its standard input closes,
which also happens when the driver dies.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import BinaryIO, NamedTuple

from barnabas.streams.query.direct import Direct
from barnabas.streams.query.sink import Report
from barnabas.streams.query.tick import Tick


class Task(NamedTuple):
    """A part of a tick."""

    direct: Direct
    tick: Tick
    number: int


class Failure(NamedTuple):
    """Why a task has failed, with the exception's name."""

    why: str


#: A worker's first message, and its answers.
READY = "ready"
Answer = list[Report] | Failure


def serve(tasks: BinaryIO, answers: BinaryIO) -> None:
    """Do all tasks that come, until there are no more."""
    _say(answers, READY)
    while True:
        try:
            task: Task = pickle.load(tasks)
        except EOFError:
            return
        _say(answers, _answer(task))


def _answer(task: Task) -> Answer:
    try:
        return task.direct.run(task.tick, task.number)
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}")


def _say(answers: BinaryIO, what: object) -> None:
    pickle.dump(what, answers)
    answers.flush()


def main() -> None:
    """Serve the driver. Anything that a library prints is not an answer, and goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    from barnabas.streams.query import worker  # the answers then have the classes that the driver knows

    worker.main()
