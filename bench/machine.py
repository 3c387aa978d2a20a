"""The CPU time that other guests take from a virtual machine: it distorts all figures of that time."""

from __future__ import annotations

from pathlib import Path

_STEAL = 7  # user, nice, system, idle, iowait, irq, softirq, steal: proc(5)


class Stolen:
    """The share of CPU time that the host gave to other guests, since this object was made."""

    def __init__(self) -> None:
        self._stolen, self._all = _times()

    def percent(self) -> float:
        """The percentage so far, over all cores."""
        stolen, total = _times()
        return 100 * (stolen - self._stolen) / max(total - self._all, 1)


def _times() -> tuple[int, int]:
    """The stolen ticks and all ticks since the machine started."""
    ticks = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1 : _STEAL + 2]))
    return (ticks[_STEAL] if len(ticks) > _STEAL else 0), sum(ticks)
