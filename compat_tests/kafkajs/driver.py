"""kafkajs: one Node.js process for all scenarios, which reads commands as lines of JSON."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
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
    Record,
    Refused,
)
from compat_tests.tools import KAFKAJS
from compat_tests.waiting import DEADLINE

SCRIPT = Path(__file__).with_name("driver.js")


def environment() -> dict[str, str]:
    """The environment with which Node.js finds kafkajs."""
    return {
        **os.environ,
        "NODE_PATH": str(KAFKAJS / "node_modules"),
        "KAFKAJS_NO_PARTITIONER_WARNING": "1",
        "NODE_NO_WARNINGS": "1",
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode("latin-1")


def _record(told: dict[str, Any]) -> Record:
    headers = tuple((name, _bytes(value)) for name, value in told["headers"])
    return Record(
        _bytes(told["value"]), _bytes(told["key"]), headers, told["partition"], told["timestamp"], told["offset"]
    )


class GroupMember(Member):
    """A consumer inside the Node.js process."""

    def __init__(self, driver: KafkajsDriver, number: int) -> None:
        super().__init__()
        self.driver, self.number = driver, number
        self.open = True

    def see(self, told: dict[str, Any]) -> None:
        """Handle an event of this member."""
        match told["event"]:
            case "record":
                self.on_records([_record(told["record"])])
            case "assigned":
                self.on_revoked(self.assigned)  # the client reports all its partitions, not the new ones
                self.on_assigned(told["partitions"])
            case "revoked":
                self.on_revoked(self.assigned)
            case "failed":
                self.on_failure(AssertionError(told["error"]))

    def close(self) -> None:
        if self.open:
            self.open = False
            self.driver.call("leave", member=self.number)


class KafkajsDriver(Driver):
    name = "kafkajs"
    tool = "kafkajs"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.numbers = itertools.count(1)
        self.answers: dict[int, Future[Any]] = {}
        self.members: dict[int, GroupMember] = {}
        self.process = subprocess.Popen(
            ["node", str(SCRIPT), address, str(SESSION_TIMEOUT_MS), str(HEARTBEAT_MS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        threading.Thread(target=self._listen, daemon=True).start()

    @staticmethod
    def version() -> str:
        return str(json.loads((KAFKAJS / "node_modules" / "kafkajs" / "package.json").read_text())["version"])

    def _listen(self) -> None:
        assert self.process.stdout
        with self.process.stdout:
            for line in self.process.stdout:
                told = json.loads(line)
                if "member" in told:
                    self.members[told["member"]].see(told)
                elif "error" in told:
                    self.answers.pop(told["id"]).set_exception(Refused(told["error"]))
                else:
                    self.answers.pop(told["id"]).set_result(told["result"])
        for future in self.answers.values():
            future.set_exception(AssertionError("the node process ended"))

    def call(self, operation: str, **options: Any) -> Any:
        """Send a command, and return its result. Raises Refused."""
        assert self.process.stdin
        number, answer = next(self.numbers), Future[Any]()
        self.answers[number] = answer
        self.process.stdin.write(json.dumps({"id": number, "op": operation, **options}) + "\n")
        self.process.stdin.flush()
        return answer.result(DEADLINE)

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(120)

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False
    ) -> None:
        told = [
            {
                "value": _text(r.value),
                "key": _text(r.key),
                "headers": [(n, _text(v)) for n, v in r.headers],
                "partition": r.partition,
                "timestamp": r.timestamp,
            }
            for r in records
        ]
        number = -1 if acks == "all" else int(acks)
        self.call("produce", topic=topic, records=told, codec=codec, acks=number, idempotent=idempotent)

    def consume(self, topic: str, count: int, at: At = BEGINNING, partition: int | None = 0) -> list[Record]:
        got = self.call("consume", topic=topic, count=count, kind=at.kind, number=at.number, partition=partition)
        return [_record(told) for told in got]

    def join(
        self, group: str, topic: str, *, latest: bool = False, instance: str | None = None, strategy: str = "range"
    ) -> Member:
        if instance:
            raise NotApplicable("the client has no static membership")
        if strategy == "cooperative":
            raise NotApplicable("the client has no cooperative rebalance")
        number = next(self.numbers)
        member = self.members[number] = GroupMember(self, number)
        self.call("join", member=number, group=group, topic=topic, latest=latest)
        return member

    def consume_in_group(self, group: str, topic: str, count: int) -> list[Record]:
        return [_record(told) for told in self.call("consumeInGroup", group=group, topic=topic, count=count)]

    # --- administration -----------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        self.call("createTopic", topic=topic, partitions=partitions, configs=configs or {})

    def delete_topic(self, topic: str) -> None:
        self.call("deleteTopic", topic=topic)

    def topics(self) -> dict[str, int]:
        return dict(self.call("topics"))

    def topic_config(self, topic: str) -> dict[str, str]:
        return dict(self.call("topicConfig", topic=topic))

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        self.call("setTopicConfig", topic=topic, key=key, value=value)

    def groups(self) -> set[str]:
        return set(self.call("groups"))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        told = self.call("committed", group=group, topic=topic)
        return {int(partition): offset for partition, offset in told.items()}
