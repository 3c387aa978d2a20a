"""How much CPU each test and each file of tests takes, with all processes that it starts.

    python -m compat_tests.cpu_by_file streams -m "not slow"

Wall clock says little on a machine that does other things, and the CPU is what a run of all tests waits for. pytest
runs below a process that adopts orphans (prctl(2), PR_SET_CHILD_SUBREAPER), so a driver whose broker was killed is
counted, too. What a process has used whose parent does not wait for it is lost when it ends: then the figure of that
test is too low, or negative.
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
    """Of the processes below this one: those that run, and those that have ended and were waited for."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    ended: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended since
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
    """Notes for each test what was used from the end of the one before it to its own."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self._cpu, self._wall = cpu_seconds(os.getppid()), time.monotonic()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Around a test, and the fixtures that begin and end with it."""
        yield
        cpu, wall = cpu_seconds(os.getppid()), time.monotonic()
        print(f"{cpu - self._cpu:.2f} {wall - self._wall:.2f} {item.nodeid}", file=self._file, flush=True)
        self._cpu, self._wall = cpu, wall


def pytest_configure(config: pytest.Config) -> None:
    """As a plugin of the pytest below."""
    config.pluginmanager.register(Meter(Path(os.environ[WRITTEN_TO])))


def _table(title: str, rows: dict[str, list[float]], most: int) -> None:
    print(f"\n{title:<60} {'CPU s':>8} {'wall s':>8} {'tests':>6}")
    for name, (cpu, wall, count) in sorted(rows.items(), key=lambda row: -row[1][0])[:most]:
        print(f"{name:<60} {cpu:8.1f} {wall:8.1f} {count:6.0f}")


def report(path: Path) -> None:
    """By part, by file and by test, the dearest first."""
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
    """Run pytest with these arguments, one process of it, and say what it took."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    path = Path(os.environ.setdefault(WRITTEN_TO, "build/cpu_by_test.txt"))
    path.parent.mkdir(parents=True, exist_ok=True)
    run = [sys.executable, "-m", "pytest", "-p", "compat_tests.cpu_by_file", "-p", "no:xdist", *sys.argv[1:]]
    pytest_process = subprocess.Popen(run)
    while True:
        pid, status = os.wait()  # adopted ones, too
        if pid == pytest_process.pid:
            break
    report(path)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
