"""A measured broker: its process, its meter, and the time of its first answer."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from barnabas.client.connection import connect, parse_servers
from barnabas.client.errors import ClientError
from bench.create import end_offsets
from bench.servers import Clock, Meter, make
from compat_tests.apache_kafka import ApacheKafka
from compat_tests.broker_process import Server, following_free_ports

START_SECONDS = 300.0
PROBE_SECONDS = 0.005
IDLE_SECONDS = 5.0


class Running:
    """A broker on a new data directory. `inputs` is a folder that all brokers of a run share."""

    def __init__(self, name: str, policy: str, folder: Path, inputs: Path) -> None:
        self.name, self.policy, self.inputs = name, policy, inputs
        self.server: Server = make(name, policy, folder)
        if isinstance(self.server, ApacheKafka):
            self.server.format()
        else:
            self.server.port = following_free_ports(self.server.processes)

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return self.server.address

    @property
    def data_dir(self) -> Path:
        """The folder of the logs."""
        return self.server.data_dir

    def start(self, topic: str | None = None) -> float:
        """Start the process; returns the seconds until its first answer (with a topic: for all of its partitions)."""
        answered: list[float] = []
        probe = threading.Thread(target=lambda: answered.append(first_answer(self.address, topic)), daemon=True)
        began = time.perf_counter()
        probe.start()
        self.server.start()
        probe.join()
        assert self.server.process is not None
        self.meter = Meter(self.server.process.pid)
        return answered[0] - began

    def alive(self) -> bool:
        """Whether the process is still there."""
        return self.server.process is not None and self.server.process.poll() is None

    def idle(self) -> dict[str, float]:
        """The CPU of the idle broker."""
        time.sleep(1)  # until the work that the load has left is done
        with Clock(self.meter) as clock:
            time.sleep(IDLE_SECONDS)  # the idle state is measured
        return {"idle CPU %": clock.cpu / clock.wall * 100, "MiB": clock.rss}


def first_answer(address: str, topic: str | None) -> float:
    """Ask until an answer comes: ApiVersions, or the end offsets of a topic. Returns the time."""
    until = time.perf_counter() + START_SECONDS
    while True:
        try:
            wire = connect(parse_servers(address))
            there = topic is None or end_offsets(wire, topic) is not None
            now = time.perf_counter()
            wire.close()
        except ClientError:
            there, now = False, time.perf_counter()
        if there or now > until:
            return now
        time.sleep(PROBE_SECONDS)  # a process that does not listen yet cannot notify us
