"""Ends processes of Spark that wait for work which seldom comes.

Spark forks the workers that plan a Python data source from processes of 35 MB each: one that looks up sources, one that
creates them, one that plans how they are read. It uses them when a query starts, and keeps them. One that is gone it
starts again, which takes half a second.

Invariant: no process ends while it has a worker. Spark ends workers a minute after their last work.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

#: How old a process must be in seconds. A new one has no worker yet.
LEAST_AGE = 90.0
_DAEMON, _PLANS = "pyspark.daemon", "pyspark.sql.worker."
_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _STARTED = 1, 19  # fields of /proc/PID/stat after the name


def end_idle_daemons(jvm: int, least_age: float = LEAST_AGE) -> list[int]:
    """End the idle ones among a JVM's child processes. Returns their ids; none where there is no /proc."""
    parents, ages = _processes()
    ended = []
    for pid, parent in parents.items():
        if parent == jvm and ages[pid] >= least_age and pid not in parents.values() and _plans(pid):
            with suppress(OSError):
                os.kill(pid, signal.SIGTERM)
                ended.append(pid)
    return ended


def _processes() -> tuple[dict[int, int], dict[int, float]]:
    """The parents and the ages in seconds of all processes."""
    parents, ages = {}, {}
    with suppress(OSError):
        up = float(Path("/proc/uptime").read_text().split()[0])
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(OSError):
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                parents[int(name)] = int(fields[_PARENT])
                ages[int(name)] = up - int(fields[_STARTED]) / _TICKS
    return parents, ages


def _plans(pid: int) -> bool:
    """Whether this process forks workers that plan, rather than those that process records."""
    with suppress(OSError):
        words = Path("/proc", str(pid), "cmdline").read_bytes().decode(errors="replace").split("\0")
        return _DAEMON in words and any(word.startswith(_PLANS) for word in words)
    return False
