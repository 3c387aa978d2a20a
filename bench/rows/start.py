"""The memory of a process before and after the load. The code that starts it measures the time of its start."""

from __future__ import annotations

from bench.running import Running


def start(running: Running) -> dict[str, float]:
    """The memory of an idle process."""
    return {"idle MiB": running.meter.rss()}


def memory(running: Running) -> dict[str, float]:
    """The memory of the process after the earlier rows."""
    return {"loaded MiB": running.meter.rss()}
