"""Prints lists and descriptions: a table for people, or one JSON object per line for programs (`--json`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from barnabas.wire.table import table

#: A table shows this for an unknown figure; JSON has null.
UNKNOWN = "-"


def show(header: Sequence[str], rows: Iterable[Sequence[object]], *, as_json: bool) -> None:
    """Print rows. `header` has the columns in lower case, which are JSON's keys too. None is an unknown figure."""
    if not as_json:
        cells = [[UNKNOWN if cell is None else cell for cell in row] for row in rows]
        print(table([title.replace("_", " ").upper() for title in header], cells))
        return
    for row in rows:
        print(json.dumps(dict(zip(header, row, strict=True))))


def size(count: int | None) -> str | None:
    """Bytes for people to read: 1.5 MiB."""
    if count is None:
        return None
    number, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if number < 1024 or unit == "PiB":
            break
        number /= 1024
    return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"


def duration(ms: int) -> str:
    """Milliseconds for people to read, in the largest unit that gives a whole number: 7 d, 90 min, 1500 ms."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms and ms % length == 0:
            return f"{ms // length} {unit}"
    return f"{ms} ms"
