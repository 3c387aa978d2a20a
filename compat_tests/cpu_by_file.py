"""The CPU time of each test and each file of tests, including all processes that a test starts.

    python -m compat_tests.cpu_by_file streams -m "not slow"

Wall-clock time says little on a busy machine, and CPU time limits a run of all tests. pytest runs below a process that
adopts orphans (prctl(2), PR_SET_CHILD_SUBREAPER), so a driver whose broker was killed is counted, too. If a parent does
not wait for a process, the CPU time of that process is lost when it ends: the figure of that test is then too low, or
negative.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PR_SET_CHILD_SUBREAPER = 36
TICKS = os.sysconf("SC_CLK_TCK")
WRITTEN_TO = "BARNABAS_CPU_BY_TEST"


def cpu_seconds(root: int) -> float:
    """The CPU time of the processes below this one: running ones, and ended ones whose parent waited for them."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    ended: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        pid = int(stat.parent.name)
        parents[pid], used[pid] = int(fields[1]), int(fields[11]) + int(fields[12])
        ended[pid] = int(fields[13]) + int(fields[14])
    children = defaultdict(list)
    for pid, parent in parents.items():
        children[parent].append(pid)
    total, waiting = ended.get(root, 0), list(children[root])
    while waiting:
        pid = waiting.pop()
        total += used[pid] + ended[pid]
        waiting += children[pid]
    return total / TICKS


class Meter:
    """Notes for each test the CPU time from the end of the previous test to its own end."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self._cpu, self._wall = cpu_seconds(os.getppid()), time.monotonic()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measure a test with the fixtures that begin and end with it."""
        yield
        cpu, wall = cpu_seconds(os.getppid()), time.monotonic()
        print(f"{cpu - self._cpu:.2f} {wall - self._wall:.2f} {item.nodeid}", file=self._file, flush=True)
        self._cpu, self._wall = cpu, wall


def pytest_configure(config: pytest.Config) -> None:
    """Register the meter: this module is a plugin of the pytest that it starts."""
    config.pluginmanager.register(Meter(Path(os.environ[WRITTEN_TO])))


def _table(title: str, rows: dict[str, list[float]], most: int) -> None:
    print(f"\n{title:<60} {'CPU s':>8} {'wall s':>8} {'tests':>6}")
    for name, (cpu, wall, count) in sorted(rows.items(), key=lambda row: -row[1][0])[:most]:
        print(f"{name:<60} {cpu:8.1f} {wall:8.1f} {count:6.0f}")


def report(path: Path) -> None:
    """The tables by part, by file and by test, the largest first."""
    parts: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    files: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    tests: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for line in path.read_text().splitlines():
        cpu, wall, test = line.split(" ", 2)
        file = test.partition("::")[0]
        folders = Path(file).parts
        part = "/".join(folders[: 2 if folders[0] == "compat_tests" else 1])
        for rows, name in ((parts, part), (files, file), (tests, test)):
            rows[name] = [was + more for was, more in zip(rows[name], (float(cpu), float(wall), 1), strict=True)]
    _table("part", parts, len(parts))
    _table("file", files, 40)
    _table("test", tests, 60)


def main() -> int:
    """Run one pytest process with these arguments, and print the CPU times."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    path = Path(os.environ.setdefault(WRITTEN_TO, "build/cpu_by_test.txt"))
    path.parent.mkdir(parents=True, exist_ok=True)
    run = [sys.executable, "-m", "pytest", "-p", "compat_tests.cpu_by_file", "-p", "no:xdist", *sys.argv[1:]]
    pytest_process = subprocess.Popen(run)
    while True:
        pid, status = os.wait()  # wait for adopted processes, too
        if pid == pytest_process.pid:
            break
    report(path)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
