"""The process of a test's broker: `python -m barnabas.testing.served KIND DATA_DIR HOST:PORT KEY=VALUE...`.

This is `barnabas serve`, and also takes faults as JSON lines on standard input. When its input ends, the test process
is gone, so the broker ends, too. If KIND is `temporary`, its data is removed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from functools import partial

from barnabas.broker.main import serve
from barnabas.broker.node import Node
from barnabas.testing.faults import FaultyIo, Lost, losing

#: The data is removed together with the broker.
TEMPORARY = "temporary"


def main() -> int:
    """Serve until a signal comes or standard input ends."""
    kind, data_dir, address, *properties = sys.argv[1:]
    io, lost = FaultyIo(), Lost()
    left = data_dir if kind == TEMPORARY else None
    threading.Thread(target=_listen, args=(io, lost, left), daemon=True).start()
    return serve(None, data_dir, [address], properties, node=partial(Node, io=io, handlers=partial(losing, lost)))


def _listen(io: FaultyIo, lost: Lost, left: str | None) -> None:
    for line in sys.stdin:
        faults = json.loads(line)
        if "disk_seconds" in faults:
            io.take(faults["disk_seconds"])
        if "lose" in faults:
            lost.lose(*faults["lose"])
        print("faults set", flush=True)
    if left is not None:
        shutil.rmtree(left, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
