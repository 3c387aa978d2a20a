"""A broker counts as warm when the rate in short slices of the load has stopped rising."""

from __future__ import annotations

from collections.abc import Sequence

SLICE_SECONDS = 0.5
MOST_SECONDS = 30.0
RISE = 1.05


def settled(rates: Sequence[float]) -> bool:
    """Whether neither of the last two rates is more than five per cent above the best earlier one."""
    return len(rates) >= 3 and max(rates[-2:]) <= RISE * max(rates[:-2])
