"""A real broker in a process of its own, as an operator would run it."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

from barnabas.client.cluster import Cluster
from compat_tests.tools import ROOT
from compat_tests.waiting import DEADLINE, changed, until

#: The variable for the brokers' number of nodes, unless a test sets it.
PROCESSES = "BARNABAS_TEST_PROCESSES"
#: The Python of the brokers, if it is not that of the tests.
PYTHON = "BARNABAS_TEST_PYTHON"


def following_free_ports(count: int) -> int:
    """The first of `count` consecutive free ports.

    They are outside the range that the system gives to clients, which might take the port of a node that is away.
    """
    while True:
        with contextlib.ExitStack() as stack:
            first = random.randrange(12_000, 32_000)
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first


class Server(ABC):
    """A broker process that can be stopped, killed and started again on the same port and data."""

    name: ClassVar[str]
    #: The number of its nodes; with several, `kill` kills all of them and their supervisor.
    processes = 1

    def __init__(self, folder: Path, overrides: dict[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.overrides = folder, overrides or {}
        self.data_dir = folder / "data"
        self.log_file = folder / "log"
        self.port = 0
        self.expected_errors: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        self.ready = False

    @property
    def address(self) -> str:
        """HOST:PORT for clients."""
        return f"127.0.0.1:{self.port}"

    @abstractmethod
    def command(self) -> list[str]:
        """The command line that starts the broker."""

    def environment(self) -> dict[str, str]:
        """The environment of the process."""
        return dict(os.environ)

    @abstractmethod
    def see(self, line: str) -> None:
        """Handle a line of standard output."""

    def start(self) -> None:
        """Start, and return when clients can connect."""
        self.ready = False
        with self.log_file.open("a") as log:
            self.process = subprocess.Popen(
                self.command(),
                cwd=ROOT,
                env=self.environment(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=self.processes > 1,
            )
        threading.Thread(target=self._watch, args=(self.process,), daemon=True).start()
        process = self.process
        try:
            until(lambda: self.ready or process.poll() is not None, f"{self.name} is ready", DEADLINE)
            assert self.ready, f"{self.name} ended with {process.returncode} at its start:\n{self.log_tail()}"
        except AssertionError:
            self.kill()
            raise

    def __enter__(self) -> Self:
        """Start; the end of the block kills it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _watch(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        with process.stdout, self.log_file.open("a") as log:
            for line in process.stdout:
                log.write(line)
                log.flush()
                self.see(line)
                changed()
        process.wait()
        changed()

    def kill(self) -> None:
        """SIGKILL, without a clean stop."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE)

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        assert self.process
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # it writes the stacks of its threads to the log
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
            self.kill()
            raise AssertionError(f"{self.name} did not stop in {DEADLINE:g} s:\n{self.log_tail()}") from None

    @abstractmethod
    def errors(self) -> list[str]:
        """Log lines of level error, without those that the test expects."""

    def log_tail(self, lines: int = 60) -> str:
        """The last lines of the log."""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    def segment(self, topic: str, partition: int = 0) -> Path:
        """The first log segment of a partition."""
        return self.data_dir / f"{topic}-{partition}" / f"{0:020}.log"


class Barnabas(Server):
    """`barnabas serve` from this source tree."""

    name = "barnabas"
    processes = int(os.environ.get(PROCESSES, "1"))
    python = os.environ.get(PYTHON) or sys.executable

    def start(self) -> None:
        chosen = self.processes > 1 and not self.port
        for _ in range(5):  # another process may get a port between the check and the start
            if chosen:
                self.port = following_free_ports(self.processes)
            try:
                super().start()
                return
            except AssertionError as error:
                if not chosen or "is in use: stop the process" not in str(error):
                    raise
        raise AssertionError("ports that follow each other are taken again and again")

    def kill(self) -> None:
        if self.processes > 1 and self.process and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.signal_all(signal.SIGKILL)
        super().kill()

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to the broker: with several nodes, to all of them and their supervisor."""
        assert self.process is not None
        if self.processes > 1:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def command(self) -> list[str]:
        pairs = [word for key, value in self.overrides.items() for word in ("--override", f"{key}={value}")]
        listen = [] if "listeners" in self.overrides else ["--listen", f"127.0.0.1:{self.port}"]
        serve = ["-m", "barnabas", "serve", *listen, "--data-dir", str(self.data_dir)]
        several = ["--processes", str(self.processes)] if self.processes > 1 else []
        return [self.python, *serve, *several, *pairs]

    def port_of(self, topic: str, partition: int = 0) -> int:
        """The port of the node that leads a partition: nodes have consecutive ports."""
        if self.processes == 1:
            return self.port
        with Cluster(self.address) as cluster:
            leader = cluster.leaders(topic)[partition]
            return self.port + leader - min(cluster.node_ids())

    def environment(self) -> dict[str, str]:
        # Python may write compiled modules, as for an installed broker.
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}

    def see(self, line: str) -> None:
        found = re.match(r"barnabas is ready on \S+:(\d+)", line)
        if found:
            self.port, self.ready = int(found[1]), True

    def errors(self) -> list[str]:
        return [
            line
            for line in self.log_file.read_text(errors="replace").splitlines()
            if re.match(r"\S+Z error ", line) and not any(expected in line for expected in self.expected_errors)
        ]
