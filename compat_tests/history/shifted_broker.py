"""`barnabas serve` with a wall clock that a file shifts: `shifted_broker FILE serve...`; the file has milliseconds.

The supervisor restarts a killed node at once each time, however soon it was killed: the test kills on purpose.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from barnabas.broker import supervisor
from barnabas.broker.clock import Clock
from barnabas.scripts.cli import main

_file = Path(sys.argv[1])


def shifted(clock: Clock) -> int:
    try:
        shift = int(_file.read_text() or 0)
    except (FileNotFoundError, ValueError):
        shift = 0
    return time.time_ns() // 1_000_000 + shift


if __name__ == "__main__":
    supervisor._SERVED_WELL_SECONDS = 0.0
    Clock.wall_ms = shifted  # type: ignore[assignment,method-assign]
    sys.exit(main(sys.argv[2:]))
