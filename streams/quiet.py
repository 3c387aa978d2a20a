"""What Spark and its Java say, kept off the terminal of a command that tells its user itself what concerns them."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import BinaryIO, TextIO

_LAST_BYTES, _LAST_LINES = 4096, 3
_NO_MATTER = ("WARNING: ", "NOTE: ", "Picked up ")


class Quiet:
    """A stream that still leads to the terminal, and what was said meanwhile."""

    def __init__(self, terminal: TextIO, said: BinaryIO) -> None:
        self.terminal = terminal
        self._said = said

    def last_words(self) -> str:
        """The last lines that were said, in one; of a Java that ended at its start, they are why."""
        fd = self._said.fileno()
        end = os.pread(fd, _LAST_BYTES, max(0, os.fstat(fd).st_size - _LAST_BYTES)).decode(errors="replace")
        lines = [line.strip() for line in end.splitlines() if line.strip() and not line.startswith(_NO_MATTER)]
        return "; ".join(lines[-_LAST_LINES:])


@contextmanager
def spark_is_quiet(out: TextIO) -> Iterator[Quiet]:
    """Take standard output and error away from this process and those that it starts, until left.

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
        yield Quiet(terminal if out is sys.stderr else out, said)
