"""Kafka Connect, distributed: from a file to a topic to a file, over a worker's death and a rebalance."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.apache_kafka import free_ports
from compat_tests.broker_process import Barnabas
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.ecosystem.jvm import Program
from compat_tests.tools import missing
from compat_tests.waiting import until

SETTINGS = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}
STRING = "org.apache.kafka.connect.storage.StringConverter"
#: The group of a sink's tasks, by Connect's rule for names.
SINK_GROUP = "connect-sink"


class Worker(Program):
    """One worker of the cluster."""

    name = "Connect"

    def __init__(self, folder: Path, address: str, security: Mapping[str, str] | None = None) -> None:
        """`security` is a `client.properties`, for the worker's own clients and those of its connectors."""
        (self.rest,) = free_ports(1)
        secure = security or {}
        settings = {
            "bootstrap.servers": address,
            **secure,
            **{f"{kind}.{key}": value for kind in ("producer", "consumer", "admin") for key, value in secure.items()},
            "group.id": "connect",
            "key.converter": STRING,
            "value.converter": STRING,
            **{f"{name}.storage.topic": f"connect-{name}" for name in ("config", "offset", "status")},
            **{f"{name}.storage.replication.factor": "1" for name in ("config", "offset", "status")},
            "offset.storage.partitions": "2",
            "status.storage.partitions": "2",
            "offset.flush.interval.ms": "500",
            "exactly.once.source.support": "enabled",
            "plugin.discovery": "service_load",
            "listeners": f"http://127.0.0.1:{self.rest}",
            "session.timeout.ms": "2000",
            "heartbeat.interval.ms": "300",
            "scheduled.rebalance.max.delay.ms": "0",
            "connector.client.config.override.policy": "All",
        }
        folder.mkdir(parents=True)
        file = folder / "worker.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        super().__init__(folder, "Finished starting connectors and tasks", main, file, level="info")

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Call its REST interface; None while it cannot answer, for example in a rebalance."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.rest}{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.loads(answer.read() or b"true")
        except (urllib.error.HTTPError, ConnectionError):
            return None

    def runs_on(self, connector: str) -> str | None:
        """The worker that runs the connector's task; None if it does not run."""
        told = self.ask("GET", f"/connectors/{connector}/status")
        tasks = told["tasks"] if told else []
        return tasks[0]["worker_id"] if [task["state"] for task in tasks] == ["RUNNING"] else None

    @property
    def id(self) -> str:
        return f"127.0.0.1:{self.rest}"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Barnabas]:
    if reason := missing("ecosystem"):
        pytest.skip(reason)
    with Barnabas(tmp_path / "broker", SETTINGS) as broker:
        yield broker


def values(broker: Barnabas, topic: str) -> list[str]:
    """The values that a read_committed consumer reads of a topic."""
    settings = {"bootstrap.servers": broker.address, "group.id": "r", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        found.append(message.value().decode())
    assert message is not None
    consumer.close()
    return found


class Files:
    """The file that grows, and the file that must get the same lines."""

    def __init__(self, folder: Path) -> None:
        self.source, self.sink = folder / "source.txt", folder / "sink.txt"
        self.lines: list[str] = []

    def grow(self, count: int) -> None:
        fresh = [f"line {number}" for number in range(len(self.lines), len(self.lines) + count)]
        with self.source.open("a") as file:
            file.writelines(f"{line}\n" for line in fresh)
        self.lines += fresh

    def arrived(self) -> list[str]:
        return self.sink.read_text().splitlines() if self.sink.exists() else []

    def follow(self) -> None:
        until(lambda: set(self.arrived()) >= set(self.lines), f"{len(self.lines)} lines came through")


def create_connectors(worker: Worker, files: Files, topic: str = "lines") -> None:
    kind = "org.apache.kafka.connect.file.FileStream{}Connector"
    source = {"connector.class": kind.format("Source"), "file": str(files.source), "topic": topic}
    sink = {"connector.class": kind.format("Sink"), "file": str(files.sink), "topics": topic}
    # A sink commits the offsets of written records; without a committed offset, it starts at the beginning.
    early = {"consumer.override.auto.offset.reset": "earliest", "consumer.override.isolation.level": "read_committed"}
    quick = {"consumer.override.session.timeout.ms": "2000", "consumer.override.heartbeat.interval.ms": "300"}
    for name, config in (("source", source), ("sink", sink | early | quick)):
        config |= {"tasks.max": "1"}
        until(lambda name=name, config=config: worker.ask("PUT", f"/connectors/{name}/config", config), name)  # type: ignore[misc]


@pytest.mark.long
def test_files_come_through_over_a_restart_and_a_rebalance(broker: Barnabas, tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.grow(500)
    first, second = (Worker(tmp_path / name, broker.address) for name in ("first", "second"))
    with ExitStack() as stack:
        stack.enter_context(first)
        create_connectors(first, files)
        files.follow()
        assert files.arrived() == files.lines

        broker.kill()  # its compacted topics hold the connectors and their positions
        broker.start()
        files.grow(500)
        files.follow()

        stack.enter_context(second)  # a rebalance: each worker has one of the two
        until(lambda: {second.runs_on("source"), second.runs_on("sink")} == {first.id, second.id}, "both work")
        files.grow(500)
        files.follow()

        first.kill()
        files.grow(500)
        until(lambda: {second.runs_on("source"), second.runs_on("sink")} == {second.id}, "the second has all")
        files.follow()
    assert values(broker, "lines") == files.lines, "a source is exactly once"
    told = ConfluentDriver(broker.address).topic_config
    assert {told(f"connect-{name}")["cleanup.policy"] for name in ("config", "offset", "status")} == {"compact"}
    assert not broker.errors()
