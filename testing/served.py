"""The process of a test's broker: `python -m barnabas.testing.served DATA_DIR HOST:PORT KEY=VALUE...`.

It is `barnabas serve`, and takes faults as lines of JSON on standard input. When that ends, whoever has made the broker
is gone, and so is the broker.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from functools import partial

from barnabas.broker.main import serve
from barnabas.broker.node import Node
from barnabas.testing.faults import FaultyIo, Lost, losing


def main() -> int:
    """Serve until a signal ends it, or standard input does."""
    data_dir, address, *properties = sys.argv[1:]
    io, lost = FaultyIo(), Lost()
    threading.Thread(target=_listen, args=(io, lost), daemon=True).start()
    return serve(None, data_dir, [address], properties, node=partial(Node, io=io, handlers=partial(losing, lost)))


def _listen(io: FaultyIo, lost: Lost) -> None:
    for line in sys.stdin:
        faults = json.loads(line)
        if "disk_seconds" in faults:
            io.take(faults["disk_seconds"])
        if "lose" in faults:
            lost.lose(*faults["lose"])
        print("faults set", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
