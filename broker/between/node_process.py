"""The process of one node: its reports to the supervisor, and its end when the supervisor ends."""

from __future__ import annotations

import os
import signal
import sys

import trio

from barnabas.broker.between.membership import Membership
from barnabas.broker.failures import leaves
from barnabas.broker.log import EventLog, take_logging
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.keys import ConfigError
from barnabas.storage import garbage
from barnabas.storage.errors import StorageError
from barnabas.wire.text import visible

#: What a node sends each second, as long as its event loop runs.
BEAT = b"."
BEAT_SECONDS = 1.0


def run_node(config: BrokerConfig, log: EventLog, membership: Membership, report: int, life: int) -> int:
    """Serve until SIGTERM, or until the supervisor has ended. Returns the exit status.

    `report` is a pipe to the supervisor. It gets `BEAT` each second, and, once clients can connect, a line with the
    address and that of the HTTP listener, if there is one. `life` is a pipe whose other end closes when the supervisor
    ends.
    """
    take_logging(log)
    failures: list[BaseException] = []
    try:
        trio.run(_run, config, log, membership, report, life)
    except* (ConfigError, StorageError) as group:
        failures = leaves(group)
    for error in failures:
        print(f"barnabas: node {membership.node_id}: {visible(str(error))}", file=sys.stderr, flush=True)
    return 1 if failures else 0


async def _run(config: BrokerConfig, log: EventLog, membership: Membership, report: int, life: int) -> None:
    from barnabas.broker.node import Node

    node = Node(config, log, membership=membership)

    async def beat() -> None:
        while True:
            _say(report, BEAT)
            await trio.sleep(BEAT_SECONDS)

    async def outlive_nobody() -> None:
        await trio.lowlevel.wait_readable(life)
        log.warning("supervisor.ended", action="stopping")
        end()

    async def hear_signals() -> None:
        # Ctrl-C in a terminal sends SIGINT to all processes. The supervisor stops the nodes in order, with SIGTERM.
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for number in signals:
                if number == signal.SIGTERM:
                    end()

    def end() -> None:
        if node.stopping or not node.is_serving:  # the next start continues a long recovery
            nursery.cancel_scope.cancel()
        else:
            node.stop()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(beat)
        nursery.start_soon(hear_signals)
        nursery.start_soon(outlive_nobody)
        await nursery.start(node.run)
        garbage.keep_all()
        first = node.bound[0]
        http = "" if node.http is None else f" {node.http.url}"
        _say(report, f"{first.host or 'localhost'}:{first.port}{http}".encode())
        await node.stopped.wait()
        nursery.cancel_scope.cancel()


def _say(report: int, line: bytes) -> None:
    try:
        os.write(report, line + b"\n")
    except OSError:  # the supervisor has ended, and `outlive_nobody` notices
        pass
