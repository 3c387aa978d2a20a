"""The measured brokers, as processes: their start, CPU and memory.

Both brokers run with the same policy: `fsync` (every acknowledged batch is on disk: our default, Kafka with
`flush.messages=1`) or `page-cache` (Kafka's default, ours with `log.flush.interval.messages` at Kafka's value).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from compat_tests.apache_kafka import ApacheKafka
from compat_tests.broker_process import Barnabas, Server

NEVER = str(2**63 - 1)
TICKS = os.sysconf("SC_CLK_TCK")
SERVERS = ("barnabas", "kafka")
#: barnabas as two nodes, a process for each.
NODES = "nodes"
#: barnabas from the checkout that BESIDE_CHECKOUT names, to see the cost of a change.
BESIDE = "beside"
BESIDE_CHECKOUT = "BARNABAS_BENCH_BESIDE"
#: barnabas as two nodes under PyPy: the program that this variable of the environment names.
PYPY = "pypy"
PYPY_PROGRAM = "BARNABAS_BENCH_PYPY"
POLICIES = ("page-cache", "fsync")


class BenchKafka(ApacheKafka):
    """Apache Kafka with the heap and collector of its own start script."""

    def java(self, main: str, *arguments: str) -> list[str]:
        plain = super().java(main, *arguments)
        options = [
            "-Xmx1G",
            "-Xms1G",
            "-XX:+UseG1GC",
            "-XX:MaxGCPauseMillis=20",
            "-XX:InitiatingHeapOccupancyPercent=35",
            "-XX:+ExplicitGCInvokesConcurrent",
        ]
        kept = [word for word in plain[1:] if not word.startswith(("-Xmx", "-XX:+Use"))]
        return [plain[0], *options, *kept]


class TwoNodes(Barnabas):
    """`barnabas serve --processes 2`."""

    name, processes = NODES, 2


class OnPyPy(TwoNodes):
    """The same under PyPy."""

    name = PYPY
    python = os.environ.get(PYPY_PROGRAM, "pypy3")


class OtherCheckout(Barnabas):
    """`barnabas serve` from another source tree, with this tree's Python and packages."""

    name = BESIDE

    def command(self) -> list[str]:
        return ["env", "-C", os.environ[BESIDE_CHECKOUT], *super().command()]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "PYTHONPATH": os.environ[BESIDE_CHECKOUT]}


def make(server: str, policy: str, folder: Path, partitions: int = 6) -> Server:
    """A broker that is not started yet, on a fresh data directory."""
    messages = "1" if policy == "fsync" else NEVER
    settings = {"num.partitions": str(partitions), "log.flush.interval.messages": messages}
    if server == "kafka":
        return BenchKafka(folder, settings)
    kinds: dict[str, type[Barnabas]] = {BESIDE: OtherCheckout, NODES: TwoNodes, PYPY: OnPyPy}
    return kinds.get(server, Barnabas)(folder, settings)


class Meter:
    """CPU seconds and memory of a process and its children."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def pids(self) -> list[int]:
        """The process and all its descendants."""
        found, todo = [], [self.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            try:
                tasks = os.listdir(f"/proc/{pid}/task")
                for task in tasks:
                    todo += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
            except OSError:
                continue
        return found

    def cpu(self) -> float:
        """User and system time so far, seconds: of live processes by their CPU clocks, of ended children from /proc."""
        total = 0.0
        for pid in self.pids():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += time.clock_gettime(~pid << 3 | 2) + sum(map(int, fields[13:15])) / TICKS
            except OSError:  # it has ended after it was listed
                continue
        return total

    def rss(self) -> float:
        """Resident memory now, MiB."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids())
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Clock:
    """Wall and broker CPU time of a block, and the broker's memory at its end."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.start()

    def start(self) -> None:
        """Begin the block."""
        self._cpu, self._wall = self._meter.cpu(), time.perf_counter()

    def stop(self) -> None:
        """End the block."""
        self.wall, self.cpu = time.perf_counter() - self._wall, self._meter.cpu() - self._cpu
        self.rss = self._meter.rss()

    def __enter__(self) -> Clock:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
