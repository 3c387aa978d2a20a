"""A ZooKeeper server of one node on loopback, from its jars, and the znodes that old consumers would have written."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from compat_tests.apache_kafka import free_ports
from compat_tests.broker_process import Server
from compat_tests.tools import BRIEF_JVM, ZOOKEEPER_JARS
from compat_tests.waiting import until


@contextlib.contextmanager
def stopped(process: subprocess.Popen[str]) -> Iterator[None]:
    """A block during which no thread of a process runs."""
    process.send_signal(signal.SIGSTOP)
    try:
        threads = Path(f"/proc/{process.pid}/task")
        until(lambda: all(_state(each) in ("T", "t") for each in threads.iterdir()), "all threads have stopped")
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def _state(thread: Path) -> str:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]


class ZooKeeper(Server):
    """`zookeeper://127.0.0.1:PORT`; its data outlives a kill."""

    name = "ZooKeeper"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.config = folder / "zoo.cfg"

    def command(self) -> list[str]:
        if not self.config.exists():
            (self.port,) = free_ports(1)
            self.data_dir.mkdir(parents=True, exist_ok=True)
            settings = {
                "tickTime": 500,
                "dataDir": self.data_dir,
                "clientPortAddress": "127.0.0.1",
                "clientPort": self.port,
                "admin.enableServer": "false",
                "4lw.commands.whitelist": "srvr,cons",
                "maxClientCnxns": 0,
            }
            self.config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return [
            "java",
            "-Xmx256m",
            *BRIEF_JVM,
            "-cp",
            f"{ZOOKEEPER_JARS}/*",
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(self.config),
        ]

    def see(self, line: str) -> None:
        """Ignored: its standard output has no useful lines."""

    def errors(self) -> list[str]:
        """None: its log is not checked."""
        return []

    def start(self) -> None:
        """Start, and return when it serves. It takes connections before that, and closes them."""
        with self.log_file.open("a") as log:
            self.process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL, stderr=log, text=True)
        until(self._is_fine, f"{self.name} is ready")

    def _is_fine(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log_tail()
        try:
            return b"Mode: standalone" in self._ask(b"srvr")
        except OSError:
            return False

    def _ask(self, word: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), 1) as sock:
            sock.sendall(word)
            return b"".join(iter(lambda: sock.recv(65536), b""))

    def sessions(self) -> set[str]:
        """The ids of the sessions that are connected."""
        return set(re.findall(r"sid=(0x[0-9a-f]+)", self._ask(b"cons").decode()))

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """A block during which it answers no client, and keeps its connections."""
        assert self.process is not None
        with stopped(self.process):
            yield

    def place(self, chroot: str = "") -> str:
        """The address of the offsets below a chroot."""
        return f"zookeeper://127.0.0.1:{self.port}{chroot}"
