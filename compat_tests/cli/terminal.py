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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from compat_tests.tools import ROOT
from compat_tests.waiting import DEADLINE

#: How prompt_toolkit begins a prompt: it wants to know what is pasted.
_PROMPTED = b"\x1b[?2004h"
_STEERING = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>()][0-9A-Za-z]?)")


class Terminal:
    """A running command. `shown` is all that it wrote, without what steers the terminal."""

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
        """The text so far."""
        return _STEERING.sub(b"", self.raw).decode(errors="replace").replace("\r", "")

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._master, keys.encode())

    def ask(self, keys: str) -> None:
        """Type at the next prompt, once it is there: keys that come sooner are not the prompt's."""
        self._wait(lambda: self.raw.count(_PROMPTED) > self._prompts, "a prompt")
        self._prompts = self.raw.count(_PROMPTED)
        self._seen = len(self.shown)
        self.press(keys)

    def until(self, wanted: str) -> str:
        """What is shown since the last time, up to and with a text, which must come."""
        self._wait(lambda: wanted in self.shown[self._seen :], repr(wanted))
        end = self.shown.index(wanted, self._seen) + len(wanted)
        text, self._seen = self.shown[self._seen : end], end
        return text

    def ended(self) -> int:
        """The exit status, once the command has ended."""
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
                except OSError:  # nobody has the other side any more
                    self._is_over = True


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def state_of(folder: Path) -> dict[str, str]:
    """Variables with which a command keeps its history in a folder."""
    return {"XDG_STATE_HOME": str(folder)}
