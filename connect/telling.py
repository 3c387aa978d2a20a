"""How the connect commands report to the operator, and how they end on a signal."""

from __future__ import annotations

import datetime
import signal
import sys
import time

import trio

from barnabas.wire.logfmt import told
from barnabas.wire.text import visible


def say(level: str, event: str, **fields: object) -> None:
    """A log line on standard error."""
    now = datetime.datetime.fromtimestamp(time.time(), datetime.UTC).isoformat(timespec="milliseconds")
    print(f"{now.replace('+00:00', 'Z')} {level} {told(event, fields)}", file=sys.stderr, flush=True)


def failed(reason: str) -> int:
    """Print in one line why a command ends, and return its exit status."""
    print(visible(f"barnabas: {reason}"), file=sys.stderr)
    return 1


async def end_at_signals(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
            return
