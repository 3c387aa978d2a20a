"""One process of a test's broker, as the test sees it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

HOST = "127.0.0.1"
#: A start takes a third of a second. This timeout is for a busy machine.
START_SECONDS = 60.0
_READY, _SET = "barnabas is ready on ", "faults set"
_LAST_LINES = 40


class BrokerError(Exception):
    """The broker did not start, or has ended. The message has the last lines of its log."""


class Process:
    """A process that serves as the whole broker, or as one node of it.

    `words` are the arguments of `barnabas.testing.served` with a place for the address; `log` takes the lines.
    """

    def __init__(self, name: str, words: Callable[[str], Sequence[str]], log: list[str]) -> None:
        self._name, self._words, self._log = name, words, log
        self.port = 0
        self.popen: subprocess.Popen[str] | None = None
        self._changed = threading.Condition()
        self._is_ready, self._faults_set = False, 0
        self._asking = threading.Lock()  # for faults: each caller waits for its own answer

    @property
    def is_running(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def begin(self) -> None:
        """Start. `wait_until_ready` tells when clients can connect."""
        self._is_ready = False
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "barnabas.testing.served", *self._words(self.address)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        for stream in (self.popen.stdout, self.popen.stderr):
            assert stream is not None
            threading.Thread(target=self._listen, args=(self.popen, stream), daemon=True).start()

    def wait_until_ready(self) -> None:
        """Raises BrokerError if it ends instead."""
        self._wait(lambda: self._is_ready, "start")

    def stop(self) -> None:
        """Stop cleanly. If that takes over a minute, the process is killed and BrokerError is raised."""
        if self.popen is None or not self.is_running:
            return
        self.popen.send_signal(signal.SIGTERM)
        try:
            self.popen.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(self._told(f"{self._name} did not stop")) from None

    def kill(self) -> None:
        if self.popen is not None and self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()

    def send_signal(self, number: int) -> None:
        """Send a signal, if the process still runs."""
        if self.popen is not None and self.popen.poll() is None:
            os.kill(self.popen.pid, number)

    def set_faults(self, faults: Mapping[str, Any]) -> None:
        """Have it take faults. Raises BrokerError if it does not run."""
        with self._asking:
            process, wanted = self.popen, self._faults_set + 1
            if process is None or process.stdin is None or process.poll() is not None:
                if process is not None and faults == {"disk_seconds": 0}:
                    return  # it has crashed meanwhile, which ended the faults too
                raise BrokerError(self._told(f"{self._name} is not running"))
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(faults) + "\n")
                process.stdin.flush()
            self._wait(lambda: self._faults_set >= wanted, "take the faults")

    def _listen(self, process: subprocess.Popen[str], stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    if line.startswith(_READY):
                        self.port = int(line.removeprefix(_READY).split(",")[0].rpartition(":")[2])
                        self._is_ready = True
                    if line.startswith(_SET):
                        self._faults_set += 1
                    else:
                        self._log.append(line)
                    self._changed.notify_all()
        if stream is process.stdout:
            process.wait()
        with self._changed:
            self._changed.notify_all()

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        process = self.popen
        assert process is not None
        until = time.monotonic() + START_SECONDS
        with self._changed:
            while not done():
                left = until - time.monotonic()
                if left <= 0 or process.poll() is not None:
                    raise BrokerError(self._told(f"{self._name} did not {what}"))
                self._changed.wait(left)

    def _told(self, what: str) -> str:
        last = "".join(self._log[-_LAST_LINES:]).rstrip()
        return f"{what}; the last lines of its log:\n{last}" if last else what
