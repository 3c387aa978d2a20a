"""Apache Kafka, from its jars, in KRaft mode on loopback: the reference for the results of scenarios."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from compat_tests.broker_process import Server
from compat_tests.tools import KAFKA_JARS

CLUSTER_ID = "YmFybmFiYXMtanVkZ2UtMQ"


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class ApacheKafka(Server):
    """One node that is broker and controller."""

    name = "Apache Kafka"

    def __init__(self, folder: Path, overrides: dict[str, str] | None = None, heap: str = "512m") -> None:
        super().__init__(folder, overrides)
        self.heap = heap
        self.config = folder / "server.properties"

    def java(self, main: str, *arguments: str) -> list[str]:
        """The command line that runs a class of Kafka."""
        return [
            "java",
            f"-Xmx{self.heap}",
            "-XX:+UseSerialGC",
            "-Xlog:disable",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-Dorg.slf4j.simpleLogger.log.kafka.server=info",
            "-Dorg.slf4j.simpleLogger.logFile=System.out",
            "-cp",
            f"{KAFKA_JARS}/*",
            main,
            *arguments,
        ]

    def command(self) -> list[str]:
        return self.java("kafka.Kafka", str(self.config))

    def start(self) -> None:
        if not self.config.exists():
            self.format()
        super().start()

    def format(self) -> None:
        """Write the configuration and the empty data directory."""
        self.port, controller = free_ports(2)
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.overrides,
        }
        self.config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        done = subprocess.run(
            self.java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self.config)),
            capture_output=True,
            text=True,
            timeout=120,
            env=dict(os.environ),
        )
        assert done.returncode == 0, f"kafka-storage format failed:\n{done.stdout}{done.stderr}"

    def see(self, line: str) -> None:
        if "Kafka Server started" in line:
            self.ready = True

    def errors(self) -> list[str]:
        return []  # the tests do not check what Apache Kafka logs
