"""A program of an example in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from compat_tests.tools import ROOT
from compat_tests.waiting import DEADLINE, changed, until

EXAMPLES = ROOT / "docs" / "examples"
#: The environment after `source .venv/bin/activate`, with the source tree's barnabas.
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "PYTHONPATH": str(ROOT),
    "PYTHONUNBUFFERED": "1",
}


def python(example: str, program: str, *arguments: str) -> list[str]:
    """The command line of a program in Python."""
    return [sys.executable, str(EXAMPLES / example / program), *arguments]


def run(command: list[str], **more: str) -> str:
    """Run a program to its end; returns its output."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, env={**ENVIRONMENT, **more}, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Running:
    """A program that keeps running: `lines` are its output so far."""

    def __init__(self, command: list[str]) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            changed()
        self.process.wait()
        changed()

    def until_printed(self, count: int) -> None:
        """Return when it has printed `count` lines. Raises AssertionError if it ends before."""
        until(lambda: len(self.lines) >= count or self.process.poll() is not None, f"{count} lines: {self.lines[-3:]}")
        assert len(self.lines) >= count, self.lines

    def kill(self) -> None:
        """SIGKILL, for it and all processes that it has started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
