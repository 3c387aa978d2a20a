"""The processes of a broker's streams driver."""

from __future__ import annotations

import os
import signal

import psutil

from compat_tests.broker_process import Barnabas


def processes(broker: Barnabas, kind: str) -> list[psutil.Process]:
    """The processes of one kind: the driver, its JVM, the JVM's workers, the planners of streams, the crew, or all."""
    assert broker.process
    found = []
    try:
        children = psutil.Process(broker.process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    for process in children:
        try:
            name, command = process.name(), process.cmdline()
        except psutil.NoSuchProcess:  # it has ended meanwhile, or is a zombie
            continue
        if "serve" in command:  # a node of the broker
            continue
        is_kind = {
            "driver": "barnabas.streams.query" in command,
            "jvm": name == "java",
            "worker": "barnabas.streams.daemon" in command,
            "crew": "barnabas.streams.query.worker" in command,
            "planner": "pyspark.sql.streaming.python_streaming_source_runner" in command,
            "all": True,
        }[kind]
        if is_kind:
            found.append(process)
    return found


def kill(broker: Barnabas, kind: str) -> int:
    """SIGKILL for the processes of one kind; returns their number."""
    victims = processes(broker, kind)
    for process in victims:
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return len(victims)
