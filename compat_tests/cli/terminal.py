"""A command on a terminal of its own: tests read its output and press keys."""

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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from compat_tests.tools import ROOT
from compat_tests.waiting import DEADLINE

#: The beginning of each prompt of prompt_toolkit: it turns bracketed paste on.
_PROMPTED = b"\x1b[?2004h"
_STEERING = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>()][0-9A-Za-z]?)")


class Terminal:
    """A running command. `shown` is its output without the control sequences of the terminal."""

    def __init__(
        self, command: list[str], variables: Mapping[str, str], *, lines: int = 40, columns: int = 120
    ) -> None:
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
        self.raw, self._seen, self._prompts = b"", 0, 0
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._master)

    @property
    def shown(self) -> str:
        """The output so far."""
        return _STEERING.sub(b"", self.raw).decode(errors="replace").replace("\r", "")

    def press(self, keys: str) -> None:
        """Type keys."""
        os.write(self._master, keys.encode())

    def ask(self, keys: str) -> None:
        """Type at the next prompt, once it is shown: earlier keys would not reach the prompt."""
        self._wait(lambda: self.raw.count(_PROMPTED) > self._prompts, "a prompt")
        self._prompts = self.raw.count(_PROMPTED)
        self._seen = len(self.shown)
        self.press(keys)

    def until(self, wanted: str) -> str:
        """Wait for a text; returns the output since the last call, up to and including the text."""
        self._wait(lambda: wanted in self.shown[self._seen :], repr(wanted))
        end = self.shown.index(wanted, self._seen) + len(wanted)
        text, self._seen = self.shown[self._seen : end], end
        return text

    def ended(self) -> int:
        """Wait until the command has ended; returns its exit status."""
        self._wait(lambda: self._is_over, "its end")
        return self.process.wait(DEADLINE)

    def _wait(self, is_there: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + DEADLINE
        while not is_there():
            assert time.monotonic() < end, f"{what} did not come: {self.shown[self._seen :]!r}"
            assert not self._is_over, f"it ended, and {what} did not come: {self.shown[self._seen :]!r}"
            ready, _, _ = select.select([self._master], [], [], 1.0)
            if ready:
                try:
                    self.raw += os.read(self._master, 1 << 16)
                except OSError:  # no process has the other side open
                    self._is_over = True


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def state_of(folder: Path) -> dict[str, str]:
    """Environment variables that make a command keep its history in a folder."""
    return {"XDG_STATE_HOME": str(folder)}
