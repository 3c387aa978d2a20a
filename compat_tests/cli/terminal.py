"""A command on a terminal of its own: what it shows is read, and keys are pressed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path
from typing import Self

from compat_tests.tools import ROOT
from compat_tests.waiting import DEADLINE

_STEERING = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>()][0-9A-Za-z]?)")


class Terminal:
    """A running command. `shown` is all that it wrote, without what steers the terminal."""

    def __init__(self, command: list[str], *, lines: int = 40, columns: int = 120, **variables: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            **variables,
        }
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=environment, start_new_session=True,
            preexec_fn=_take_terminal,
        )  # fmt: skip
        os.close(slave)
        self.raw, self._seen = b"", 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._master)

    @property
    def shown(self) -> str:
        """The text so far."""
        return _STEERING.sub(b"", self.raw).decode(errors="replace").replace("\r", "")

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._master, keys.encode())

    def until(self, wanted: str) -> str:
        """What is shown since the last time, up to and with a text, which must come."""
        end = time.monotonic() + DEADLINE
        while (at := self.shown.find(wanted, self._seen)) < 0:
            assert time.monotonic() < end, f"{wanted!r} did not come: {self.shown[self._seen :]!r}"
            ready, _, _ = select.select([self._master], [], [], 1.0)
            if ready:
                try:
                    self.raw += os.read(self._master, 1 << 16)
                except OSError:  # it has ended
                    assert wanted in self.shown[self._seen :], self.shown[self._seen :]
        text = self.shown[self._seen : at + len(wanted)]
        self._seen = at + len(wanted)
        return text

    def ended(self) -> int:
        """The exit status, once the command has ended."""
        while True:
            try:
                if not os.read(self._master, 1 << 16):
                    break
            except OSError:
                break
        return self.process.wait(DEADLINE)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def state_of(folder: Path) -> dict[str, str]:
    """Variables with which a command keeps its history in a folder."""
    return {"XDG_STATE_HOME": str(folder)}
