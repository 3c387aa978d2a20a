"""Durations in statements: a whole number and a unit, `10s`."""

from __future__ import annotations

import re

_UNITS = {"a": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_FORM = re.compile(r"(\d{1,12})([A-Za-z]+)")
_MOST_MS = 10 * 365 * 86_400_000
EXPECTED = "a whole number with a unit, such as 500a (milliseconds), 10s, 5m, 2h, 1d or 1w"


def milliseconds(text: str) -> int:
    """A duration in milliseconds. Raises ValueError with the reason."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"{text} is no duration: expected {EXPECTED}")
    unit = found[2].lower()
    if unit in ("b", "u"):
        raise ValueError(
            f"{text}: times have milliseconds, so units below them are not supported: use a, s, m, h, d, w"
        )
    if unit in ("n", "y"):
        raise ValueError(f"{text}: months and years have no fixed length and are not supported: use d or w")
    if unit not in _UNITS:
        raise ValueError(f"{text}: {unit} is no unit: expected {EXPECTED}")
    found_ms = int(found[1]) * _UNITS[unit]
    if found_ms > _MOST_MS:
        raise ValueError(f"{text} is too long: at most ten years are possible")
    return found_ms


def written(ms: int) -> str:
    """A duration in the largest unit that gives a whole number."""
    unit = next(unit for unit in ("w", "d", "h", "m", "s", "a") if ms % _UNITS[unit] == 0)
    return f"{ms // _UNITS[unit]}{unit}"
