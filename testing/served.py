"""A process of a test's broker: `python -m barnabas.testing.served KIND DATA_DIR HOST:PORT NODES KEY=VALUE...`.

NODES is the id of the first node and the number of nodes, as in `1+3`; the key `node.id` says which one this is.

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
from pathlib import Path

from barnabas.broker.between.membership import Membership
from barnabas.broker.log import EventLog
from barnabas.broker.main import serve
from barnabas.broker.node import Node
from barnabas.broker.settings.config import BrokerConfig
from barnabas.testing.faults import FaultyIo, Lost, losing

#: The data is removed together with the broker.
TEMPORARY = "temporary"


def main() -> int:
    """Serve until a signal comes or standard input ends."""
    kind, data_dir, address, nodes, *properties = sys.argv[1:]
    io, lost = FaultyIo(), Lost()
    left = data_dir if kind == TEMPORARY else None
    threading.Thread(target=_listen, args=(io, lost, left), daemon=True).start()
    first, _, count = nodes.partition("+")

    def made(config: BrokerConfig, log: EventLog) -> Node:
        make = partial(Node, config, io=io, handlers=partial(losing, lost))
        if count == "1":
            return make(log)
        membership = Membership(config.node_id, int(first), int(count), Path(data_dir).absolute())
        return make(log.of(node=config.node_id), membership=membership)

    return serve(None, data_dir, [address], properties, node=made)


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
