"""The `barnabas` command as an operator types it, and the addresses that it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barnabas.client.admin import create_topic
from barnabas.client.cluster import Cluster
from barnabas.wire.errors import ErrorCode
from compat_tests.broker_process import Server
from compat_tests.offsets.zookeeper import ZooKeeper
from compat_tests.tools import ROOT


def command(*words: str, given: bytes = b"", status: int | None = 0, cwd: Path = ROOT) -> tuple[str, str]:
    """Run a command; returns its standard output and standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", *words],
        cwd=cwd, input=given, capture_output=True, timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    out, said = done.stdout.decode(), done.stderr.decode()
    assert status is None or done.returncode == status, out + said
    return out, said


def offsets(*words: str, **options: Any) -> tuple[str, str]:
    return command("offsets", *words, **options)


def place(server: Server) -> str:
    return f"kafka://{server.address}"


def new_topic(server: Server, name: str = "orders", partitions: int = 3) -> None:
    """Make a topic, unless it exists."""
    with Cluster(server.address) as cluster:
        code = create_topic(cluster, name, {}, partitions=partitions).error_code
        assert code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class Znodes:
    """ZooKeeper below a chroot, as old consumers see it."""

    def __init__(self, server: ZooKeeper, chroot: str) -> None:
        from kazoo.client import KazooClient

        self.server, self.chroot = server, chroot
        self.connect = f"127.0.0.1:{server.port}{chroot}"
        self.address = server.place(chroot)
        self.client = KazooClient(f"127.0.0.1:{server.port}", connection_retry={"max_tries": -1, "max_delay": 0.5})
        self.client.start()
        self.client.ensure_path(chroot)
        self.client.chroot = chroot

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def path(self, group: str, partition: int, topic: str = "orders") -> str:
        return f"/consumers/{group}/offsets/{topic}/{partition}"

    def get(self, group: str, partition: int = 0, topic: str = "orders") -> int | None:
        """The offset that an old consumer reads; None if there is no znode."""
        from kazoo.exceptions import NoNodeError

        try:
            return int(self.client.retry(self.client.get, self.path(group, partition, topic))[0])
        except NoNodeError:
            return None

    def put(self, group: str, partition: int, offset: int | bytes, topic: str = "orders") -> None:
        """Commit as an old consumer does."""
        path = self.path(group, partition, topic)
        value = offset if isinstance(offset, bytes) else b"%d" % offset
        if self.client.exists(path):
            self.client.set(path, value)
        else:
            self.client.create(path, value, makepath=True)

    def fill(self, offsets: Mapping[tuple[str, str, int], int]) -> None:
        """Commit many offsets as old consumers do, by group, topic and partition."""
        for folder in sorted({f"/consumers/{group}/offsets/{topic}" for group, topic, _ in offsets}):
            self.client.ensure_path(folder)
        todo = list(offsets.items())
        for start in range(0, len(todo), 500):
            transaction = self.client.transaction()
            for (group, topic, partition), offset in todo[start : start + 500]:
                transaction.create(self.path(group, partition, topic), b"%d" % offset)
            assert not any(isinstance(each, Exception) for each in transaction.commit())
