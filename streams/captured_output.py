"""Keeps the output of Spark and its JVM off the terminal of a command that itself reports what concerns the user."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import dropwhile
from typing import BinaryIO, TextIO

_SAID_BYTES, _LINES = 65536, 3
_ENDED = "JAVA_GATEWAY_EXITED"
_ERROR = re.compile("Error|Exception")
# The first line after a traceback's indented ones, without the error's name.
_MET_IN_PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?:[\w.]+: )?(.+)")
# The last error in a task of a failed job: the text after the names of the task and the error.
_MET_IN_A_TASK = re.compile(r"most recent failure: Lost task .*?\): (?:[\w.$]+: )?(.+)")
# Py4J's own first line says nothing; the next one has Java's error.
_CALLING = re.compile(r"\AAn error occurred while calling .*\n: (?:[\w.$]+: )?")
_NO_MATTER = ("WARNING: ", "NOTE: ", "Picked up ", "at ")


def in_one_line(error: BaseException) -> str:
    """The message of a Spark error. If a task or its worker caused it, the message of that cause."""
    text = _CALLING.sub("", str(error).strip())
    if met := _MET_IN_PYTHON.findall(text) or _MET_IN_A_TASK.findall(text):
        return str(met[-1])
    return (text.splitlines() or [repr(error)])[0]


class CapturedOutput:
    """A stream that still leads to the terminal, and the output captured meanwhile."""

    def __init__(self, terminal: TextIO, said: BinaryIO) -> None:
        self.terminal = terminal
        self._said = said

    def why(self, error: BaseException) -> str:
        """Why Spark does not start, in one line.

        If Java ended, `error` says only that, so the line is from Java's output. Otherwise it is from `error`.
        """
        return (_ENDED in str(error) and self._complaint()) or in_one_line(error)

    def _complaint(self) -> str:
        """The output from the first error on, without code locations."""
        text = os.pread(self._said.fileno(), _SAID_BYTES, 0).decode(errors="replace")
        lines = [line.strip() for line in text.splitlines()]
        lines = [line for line in lines if line and not line.startswith(_NO_MATTER)]
        return "; ".join([*dropwhile(lambda line: not _ERROR.search(line), lines)][:_LINES])


@contextmanager
def spark_output_captured(out: TextIO) -> Iterator[CapturedOutput]:
    """Redirect standard output and error of this process and its children, until the context is left.

    `out` may be standard error.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with ExitStack() as stack:
        said = stack.enter_context(tempfile.TemporaryFile())
        terminal = stack.enter_context(open(os.dup(2), "w"))
        for fd, copy in ((1, os.dup(1)), (2, os.dup(2))):
            stack.callback(os.close, copy)
            stack.callback(os.dup2, copy, fd)
            os.dup2(said.fileno(), fd)
        stack.callback(sys.stderr.flush)
        yield CapturedOutput(terminal if out is sys.stderr else out, said)
