"""`barnabas serve`: the settings from file and command line, the signals, and the line that says the broker is
ready."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from barnabas.broker.failures import leaves
from barnabas.broker.log import EventLog, take_logging
from barnabas.broker.service_manager import ServiceManager
from barnabas.broker.settings.config import BrokerConfig, read_properties
from barnabas.broker.settings.keys import ConfigError
from barnabas.storage import garbage
from barnabas.storage.errors import StorageError
from barnabas.wire.text import visible

if TYPE_CHECKING:
    from barnabas.broker.node import Node


def load_config(
    file: str | None, data_dir: str | None, listen: Sequence[str], overrides: Sequence[str], http: str | None = None
) -> BrokerConfig:
    """Settings from a properties file. Those of the command line override them. Raises ConfigError."""
    return BrokerConfig(load_properties(file, data_dir, listen, overrides, http))


def load_properties(
    file: str | None, data_dir: str | None, listen: Sequence[str], overrides: Sequence[str], http: str | None = None
) -> dict[str, str]:
    """The same settings as strings. Raises ConfigError."""
    properties = read_properties(Path(file)) if file else {}
    for pair in overrides:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--override {pair}: expected key=value")
        properties[key.strip()] = value
    if http:
        properties["barnabas.http.listen"] = http
    if data_dir:
        properties.pop("log.dirs", None)
        properties["log.dir"] = data_dir
    if listen:
        properties["listeners"] = ",".join(f"PLAINTEXT{i or ''}://{address}" for i, address in enumerate(listen))
        if len(listen) > 1:
            names = ",".join(f"PLAINTEXT{i or ''}:PLAINTEXT" for i in range(len(listen)))
            properties["listener.security.protocol.map"] = names
    return properties


def serve(
    file: str | None,
    data_dir: str | None,
    listen: Sequence[str],
    overrides: Sequence[str],
    *,
    http: str | None = None,
    log_level: str = "info",
    log_format: str = "logfmt",
    ready_file: str | None = None,
    processes: int = 1,
    node: Callable[[BrokerConfig, EventLog], Node] | None = None,
) -> int:
    """Run a broker until SIGTERM, SIGINT or SIGHUP. Returns the exit status; an operator's error is reported in one
    line.

    `ready_file` contains the address of the first listener while clients can connect. `node` makes the broker, if it is
    not the usual `Node`. With several `processes`, a supervisor starts that number of nodes; 0 means one for each core.
    """
    began = time.perf_counter()
    log = EventLog(level=log_level, as_json=log_format == "json")
    take_logging(log)
    failures: list[BaseException] = []
    try:
        properties = load_properties(file, data_dir, listen, overrides, http)
        config = BrokerConfig(properties)
        if config.unknown:
            log.warning("config.unknown", keys=",".join(config.unknown), effect="ignored")
        if config.unused():
            log.info("config.unused", keys=",".join(config.unused()), effect="none")
        ready = Path(ready_file) if ready_file else None
        count = processes or len(os.sched_getaffinity(0))
        if count > 1:
            sys.setswitchinterval(SWITCH_SECONDS)
            garbage.collect_seldom()
            return _supervise(properties, count, log, ready, began)
        trio.run(_serve, config, log, began, ready, node)
    except* (ConfigError, StorageError) as group:
        failures = leaves(group)
    for error in failures:
        print(f"barnabas: {visible(str(error))}", file=sys.stderr)
    return 1 if failures else 0


def _supervise(properties: dict[str, str], count: int, log: EventLog, ready: Path | None, began: float) -> int:
    # Load the modules that all nodes use before the fork, so that the nodes share their memory.
    import barnabas.broker.node  # noqa: F401
    from barnabas.broker.supervisor import Supervisor

    return Supervisor(properties, count, log, ready, began, _say).run()


# A thread that decodes a large request lets the event loop run after this time.
SWITCH_SECONDS = 0.0005


async def _serve(
    config: BrokerConfig,
    log: EventLog,
    began: float,
    ready_file: Path | None,
    make: Callable[[BrokerConfig, EventLog], Node] | None,
) -> None:
    from barnabas.broker.node import Node

    sys.setswitchinterval(SWITCH_SECONDS)
    garbage.collect_seldom()
    node = (make or Node)(config, log)
    manager = ServiceManager()
    node.on_recovery = manager.recovering
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_signal, node, nursery.cancel_scope, manager)
        await nursery.start(node.run)
        # The objects made during startup stay, so collections need not examine them again. A collection at this point
        # would free almost nothing and would delay the first client.
        garbage.keep_all()
        addresses = ", ".join(f"{b.host or '*'}:{b.port}" for b in node.bound)
        if node.http is not None:
            _say(f"HTTP is on {node.http.url}")
        _say(
            f"barnabas is ready on {addresses}, data in {config.data_dir}, started in "
            f"{time.perf_counter() - began:.2f} s"
        )
        address = f"{node.bound[0].host or 'localhost'}:{node.bound[0].port}"
        if sys.stdout.isatty():
            _say(f"Try: kcat -b {address} -t hello -P    (type lines, end with Ctrl-D; -C instead of -P reads them)")
        nursery.start_soon(manager.watched)
        with _ready(ready_file, address):
            manager.ready(addresses)
            await node.stopped.wait()
        nursery.cancel_scope.cancel()
    log.info("stopped")


@contextlib.contextmanager
def _ready(file: Path | None, address: str) -> Iterator[None]:
    """While clients can connect, keep their address in a file. The file is replaced atomically. Raises ConfigError."""
    if file is None:
        yield
        return
    try:
        fresh = file.with_name(f"{file.name}.new")
        fresh.write_text(f"{address}\n")
        fresh.replace(file)
    except OSError as error:
        raise ConfigError(f"--ready-file {file}: {error.strerror}") from None
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _say(line: str) -> None:
    """Print a line for the user who started the broker, if the terminal still exists."""
    try:
        print(line, flush=True)
    except OSError:
        pass


async def _stop_on_signal(node: Node, scope: trio.CancelScope, manager: ServiceManager) -> None:
    stops = {signal.SIGTERM, signal.SIGINT}
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # with nohup, a broker continues after its terminal closes
        stops.add(signal.SIGHUP)
    with trio.open_signal_receiver(*stops) as signals:
        async for number in signals:
            if node.stopping or not node.is_serving:  # the next start continues a long recovery
                scope.cancel()
                return
            manager.stopping()
            node.log.info("stopping", signal=signal.Signals(number).name)
            node.stop()
