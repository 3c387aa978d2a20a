"""Spark's processes without work, which the driver ends."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
if not Path("/proc/uptime").exists():
    pytest.skip("this system has no /proc", allow_module_level=True)

from barnabas.streams.windows.idle_daemons import end_idle_daemons
from compat_tests.waiting import until

PLANS = "pyspark.sql.worker.create_data_source"


@contextlib.contextmanager
def daemon(kind: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Spark's process that forks workers of a kind, and its port."""
    words = [sys.executable, "-m", "pyspark.daemon", kind]
    environment = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": "secret"}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process, int.from_bytes(process.stdout.read(4), "big")
        finally:
            process.stdin.close()


def test_a_process_that_plans_ends_when_it_has_no_worker() -> None:
    with daemon(PLANS) as (plans, port), daemon("pyspark.worker") as (records, _):
        assert end_idle_daemons(os.getpid()) == [], "they are new"
        assert end_idle_daemons(1, 0) == [], "they are children of another process"
        with socket.create_connection(("127.0.0.1", port)) as worker:
            assert int.from_bytes(worker.recv(4), "big") > 0, "the worker's process"
            assert end_idle_daemons(os.getpid(), 0) == []
        ended: list[int] = []

        def is_idle() -> bool:
            ended.extend(end_idle_daemons(os.getpid(), 0))
            return bool(ended)

        until(is_idle, "the worker is gone")
        assert ended == [plans.pid]
        plans.wait(30)
        assert records.poll() is None
