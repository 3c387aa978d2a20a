"""`barnabas connect binlog` in a process of its own, and the messages of its topics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnabas.client.cluster import Cluster
from barnabas.client.errors import RefusedError
from barnabas.client.fetch import Reader
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.connect.binlog.place import Position, positions
from compat_tests.binlog.mariadb import PASSWORD, MariaDb
from compat_tests.tools import ROOT
from compat_tests.waiting import until

END_SECONDS = 60


class Subscriber:
    """One subscription. Its process can be killed and started again."""

    def __init__(self, folder: Path, server: MariaDb, broker: str, name: str, *options: str) -> None:
        self.server, self.broker, self.name, self.options = server, broker, name, options
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._told_before = 0

    def start(self, url: str | None = None, password: str = PASSWORD) -> None:
        command = [sys.executable, "-m", "barnabas", "connect", "binlog", "--bootstrap", self.broker]
        command += ["--source", url or self.server.url, "--name", self.name, *self.options]
        environment = {**os.environ, "MYSQL_PWD": password}
        self._told_before = len(self.told())
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log)

    def reading(self) -> None:
        """Return when it reads the binary log."""

        def is_reading() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.told()[-1000:]
            return "binlog.reading" in self.told()[self._told_before :]

        until(is_reading, f"{self.name} reads: {self.told()[-500:]}", END_SECONDS)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(END_SECONDS)

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(END_SECONDS)

    def ended(self) -> str:
        """Wait until it ends by itself with status 1; returns its error."""
        assert self.process is not None
        assert self.process.wait(END_SECONDS) == 1
        return self.told().splitlines()[-1]

    def told(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def position(self) -> Position | None:
        try:
            with Cluster(self.broker) as cluster:
                return positions(cluster).get(self.name)
        except RefusedError:  # the first reader has not created the topic yet
            return None

    def wait_for(self, gtids: str) -> None:
        """Return when it has written the whole snapshot, and all changes up to a GTID position."""

        def is_there() -> bool:
            assert self.process is None or self.process.poll() is None, self.told()[-1000:]
            found = self.position()
            return found is not None and found.copied is None and found.place.gtids == gtids

        until(is_there, f"{self.name} comes to {gtids}: {self.told()[-500:]}", END_SECONDS)


def messages(broker: str, topic: str) -> list[dict[str, Any]]:
    """The messages that a read_committed consumer sees in a topic, partition by partition, as JSON."""
    return [json.loads(value) for value in values(broker, topic) if value is not None]


def values(broker: str, topic: str) -> Sequence[bytes | None]:
    with Cluster(broker) as cluster:
        keys = [(topic, partition) for partition in sorted(cluster.leaders(topic))]
        reader = Reader(cluster, topic, committed_only=True)
        starts, ends = (list_offsets(cluster, keys, special) for special in (EARLIEST, LATEST))
        reader.positions = {partition: starts[topic, partition] for _, partition in keys}
        found: dict[int, list[bytes | None]] = {partition: [] for _, partition in keys}
        while any(reader.positions[partition] < ends[topic, partition] for _, partition in keys):
            for partition, record in reader.poll():
                found[partition].append(record.value)
    return [value for partition in found for value in found[partition]]
