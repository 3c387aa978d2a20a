"""Apache Kafka's own tools, and so the Java client: console and verifiable clients, kafka-topics, -configs, -groups."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compat_tests.driver import (
    BEGINNING,
    HEARTBEAT_MS,
    SESSION_TIMEOUT_MS,
    At,
    Driver,
    Member,
    NotApplicable,
    ProcessMember,
    Record,
    Refused,
)
from compat_tests.java import tools
from compat_tests.tools import KAFKA_JARS

NULL = "\\N"
_EXCEPTION = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+)Exception")
_NAMES = {"RecordTooLarge": "MESSAGE_TOO_LARGE", "TopicExists": "TOPIC_ALREADY_EXISTS"}
_STRATEGIES = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


def _field(value: bytes | None) -> bytes:
    return NULL.encode() if value is None else value


def _value(text: str) -> bytes | None:
    return None if text == NULL else text.encode()


def _record(line: str) -> Record:
    """A line of the console consumer."""
    stamp, partition, offset, headers, key, value = line.split("\t")
    pairs = [] if headers == "NO_HEADERS" else [pair.partition(":") for pair in headers.split(",")]
    return Record(
        _value(value),
        _value(key),
        tuple((name, _value(content)) for name, _, content in pairs),
        int(partition.partition(":")[2]),
        int(stamp.partition(":")[2]),
        int(offset.partition(":")[2]),
    )


def _verified(told: dict[str, Any]) -> Record:
    """A record as kafka-verifiable-consumer prints it."""
    value = told["value"]
    return Record(None if value is None else value.encode(), partition=told["partition"], offset=told["offset"])


class VerifiableMember(ProcessMember):
    """kafka-verifiable-consumer prints its events as lines of JSON, and commits after each poll."""

    def see_output(self, line: str) -> None:
        told = json.loads(line)
        match told["name"]:
            case "record_data":
                self.on_records([_verified(told)])
            case "partitions_assigned":
                self.on_assigned(place["partition"] for place in told["partitions"])
            case "partitions_revoked":
                self.on_revoked(place["partition"] for place in told["partitions"])


class JavaDriver(Driver):
    name = "Apache Kafka's tools"
    tool = "java"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.folder = tempfile.TemporaryDirectory(prefix="barnabas-compat-")
        self.consumer_config = Path(self.folder.name, "consumer.properties")
        self.consumer_config.write_text(f"heartbeat.interval.ms={HEARTBEAT_MS}\n")

    def close(self) -> None:
        self.folder.cleanup()

    @staticmethod
    def version() -> str:
        (jar,) = KAFKA_JARS.glob("kafka-tools-[0-9]*.jar")
        return jar.stem.removeprefix("kafka-tools-")

    def _run(self, main: str, *arguments: str, lines: bytes | None = None) -> subprocess.CompletedProcess[str]:
        return tools.run(main, "--bootstrap-server", self.address, *arguments, lines=lines)

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False
    ) -> None:
        if any(record.partition for record in records):
            raise NotApplicable("the console producer cannot choose the partition")
        if any(record.timestamp is not None for record in records):
            raise NotApplicable("the console producer cannot set timestamps")
        headers, keys = any(r.headers for r in records), any(r.key is not None for r in records)
        lines = []
        for record in records:
            words = [_field(record.value)]
            if keys:
                words.insert(0, _field(record.key))
            if headers:
                pairs = (name.encode() + b":" + _field(value) for name, value in record.headers)
                words.insert(0, b",".join(pairs) or NULL.encode())
            lines.append(b"\t".join(words) + b"\n")
        more = ["--command-property", "enable.idempotence=true"] if idempotent else []
        limits = {"--max-block-ms": "3000", "--request-timeout-ms": "10000", "--timeout": "5"}
        form = {"parse.key": str(keys).lower(), "parse.headers": str(headers).lower(), "null.marker": NULL}
        done = self._run(
            tools.CONSOLE_PRODUCER,
            *("--topic", topic, "--compression-codec", codec),
            *("--request-required-acks", {"all": "-1"}.get(acks, acks)),
            *(word for option in limits.items() for word in option),
            *(word for name, value in form.items() for word in ("--reader-property", f"{name}={value}")),
            *more,
            lines=b"".join(lines),
        )
        self._check(done)

    @staticmethod
    def _check(done: subprocess.CompletedProcess[str]) -> str:
        """The output of a tool. Raises Refused with the tool's error."""
        found = _EXCEPTION.search(done.stderr) or _EXCEPTION.search(done.stdout)
        if found:
            raise Refused(_NAMES.get(found[1], found[1]))
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def consume(self, topic: str, count: int, at: At = BEGINNING, partition: int | None = 0) -> list[Record]:
        if partition is None:
            place = ["--from-beginning"]
        elif at.kind == "beginning":
            place = ["--partition", str(partition), "--offset", "earliest"]
        else:
            offset = at.number if at.kind == "offset" else self._offset(topic, partition, at.number)
            place = ["--partition", str(partition), "--offset", str(offset)]
        shown = ["timestamp", "partition", "offset", "headers", "key", "value"]
        properties = [f"print.{name}=true" for name in shown] + [f"null.literal={NULL}"]
        done = self._run(
            tools.CONSOLE_CONSUMER,
            *("--topic", topic, *place),
            *("--max-messages", str(count), "--timeout-ms", "30000"),
            *(word for each in properties for word in ("--formatter-property", each)),
        )
        return [_record(line) for line in self._check(done).splitlines()]

    def _offset(self, topic: str, partition: int, stamp: int) -> int:
        done = self._run(tools.GET_OFFSETS, "--topic-partitions", f"{topic}:{partition}", "--time", str(stamp))
        return int(self._check(done).rpartition(":")[2])

    def _group_options(self, group: str, topic: str, *more: str) -> list[str]:
        return [
            *("--bootstrap-server", self.address, "--command-config", str(self.consumer_config)),
            *("--group-id", group, "--topic", topic, "--session-timeout", str(SESSION_TIMEOUT_MS)),
            "--verbose",
            *more,
        ]

    def join(
        self, group: str, topic: str, *, latest: bool = False, instance: str | None = None, strategy: str = "range"
    ) -> Member:
        more = ["--assignment-strategy", _STRATEGIES[strategy], "--reset-policy", "latest" if latest else "earliest"]
        if instance:
            more += ["--group-instance-id", instance]
        return VerifiableMember(tools.command(tools.VERIFIABLE_CONSUMER, *self._group_options(group, topic, *more)))

    def consume_in_group(self, group: str, topic: str, count: int) -> list[Record]:
        options = self._group_options(group, topic, "--max-messages", str(count))
        told = [json.loads(line) for line in self._check(tools.run(tools.VERIFIABLE_CONSUMER, *options)).splitlines()]
        return [_verified(event) for event in told if event["name"] == "record_data"]

    # --- administration -----------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        pairs = [word for key, value in (configs or {}).items() for word in ("--config", f"{key}={value}")]
        self._check(self._run(tools.TOPICS, "--create", "--topic", topic, "--partitions", str(partitions), *pairs))

    def delete_topic(self, topic: str) -> None:
        self._check(self._run(tools.TOPICS, "--delete", "--topic", topic))

    def topics(self) -> dict[str, int]:
        told = self._check(self._run(tools.TOPICS, "--describe"))
        return {name: int(count) for name, count in re.findall(r"^Topic: (\S+).*PartitionCount: (\d+)", told, re.M)}

    def topic_config(self, topic: str) -> dict[str, str]:
        place = ("--entity-type", "topics", "--entity-name", topic)
        told = self._check(self._run(tools.CONFIGS, *place, "--describe", "--all"))
        return dict(re.findall(r"^\s+([\w.]+)=(.*?) sensitive=", told, re.M))

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        place = ("--entity-type", "topics", "--entity-name", topic)
        self._check(self._run(tools.CONFIGS, *place, "--alter", "--add-config", f"{key}={value}"))

    def groups(self) -> set[str]:
        return set(self._check(self._run(tools.GROUPS, "--list")).split())

    def committed(self, group: str, topic: str) -> dict[int, int]:
        told = self._check(self._run(tools.GROUPS, "--describe", "--group", group, "--offsets"))
        rows = [line.split() for line in told.splitlines()]
        return {int(row[2]): int(row[3]) for row in rows if row[:2] == [group, topic]}
