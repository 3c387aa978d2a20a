"""What a process costs before and after the load. The time of its start is known to who started it."""

from __future__ import annotations

from bench.running import Running


def start(running: Running) -> dict[str, float]:
    """Nothing but the process."""
    return {"idle MiB": running.meter.rss()}


def memory(running: Running) -> dict[str, float]:
    """What the process holds after the rows before."""
    return {"loaded MiB": running.meter.rss()}
