"""kcat: one process for each call."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence

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
    wait_for_records,
)
from compat_tests.waiting import DEADLINE

_FAILED = re.compile(r"Delivery failed for message: (?P<why>.*)|% ERROR: (?P<error>.*)")
_REBALANCED = re.compile(
    r"Group \S+ rebalanced(?:: incremental)? "
    r"(?:\(memberid [^)]*\): (?=assigned|revoked))?(assign|revo)\w*(?: of \d+ partition\(s\) \(.*?\))?: (.*)"
)
_NAMES = {"Broker: Message size too large": "MESSAGE_TOO_LARGE"}


def _record(line: str) -> Record:
    told = json.loads(line)
    pairs = told.get("headers") or []
    headers = tuple((name, _bytes(value)) for name, value in zip(pairs[::2], pairs[1::2], strict=True))
    return Record(_bytes(told["payload"]), _bytes(told["key"]), headers, told["partition"], told["ts"], told["offset"])


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


class GroupMember(ProcessMember):
    """`kcat -G`: records on standard output, rebalances on standard error."""

    def see_output(self, line: str) -> None:
        self.on_records([_record(line)])

    def see_error(self, line: str) -> None:
        super().see_error(line)
        found = _REBALANCED.search(line)
        if found:
            partitions = [int(number) for number in re.findall(r"\[(\d+)\]", found[2])]
            (self.on_assigned if found[1] == "assign" else self.on_revoked)(partitions)


class KcatDriver(Driver):
    name = "kcat"
    tool = "kcat"
    lost_by_close = 1  # with any broker, kcat marks the current record as read on SIGTERM but does not print it

    @staticmethod
    def version() -> str:
        told = subprocess.run(["kcat", "-V"], capture_output=True, text=True, timeout=120).stdout
        version, library = re.search(r"Version (\S+)", told), re.search(r"librdkafka (\S+)", told)
        return f"{version and version[1]} (librdkafka {library and library[1]})"

    def _command(self, *arguments: str, **settings: object) -> list[str]:
        pairs = [word for key, value in settings.items() for word in ("-X", f"{key.replace('_', '.')}={value}")]
        return ["kcat", "-b", self.address, "-m", "10", *pairs, *arguments]

    def produce(
        self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False
    ) -> None:
        if any(record.timestamp is not None for record in records):
            raise NotApplicable("the client cannot set timestamps")
        begin = 0
        for end in range(1, len(records) + 1):  # one process for each run of records with the same arguments
            arguments = self._arguments(records[begin])
            if end == len(records) or self._arguments(records[end]) != arguments:
                self._produce(topic, records[begin:end], arguments, codec, acks, idempotent)
                begin = end

    @staticmethod
    def _arguments(record: Record) -> list[str]:
        words = ["-p", str(record.partition)] if record.partition is not None else []
        for name, value in record.headers:
            words += ["-H", name if value is None else f"{name}={value.decode()}"]
        if record.key is not None:
            words += ["-K", "\t"]
        if record.value is None:
            words += ["-Z"]
        return words

    def _produce(
        self, topic: str, records: Sequence[Record], arguments: list[str], codec: str, acks: str, idempotent: bool
    ) -> None:
        lines = [(b"" if r.key is None else r.key + b"\t") + (r.value or b"") for r in records]
        command = self._command(
            *("-P", "-t", topic, "-z", codec),
            *arguments,
            acks=acks,
            enable_idempotence=str(idempotent).lower(),
            linger_ms=5,
            message_max_bytes=3_000_000,
            message_timeout_ms=5_000,
            topic_metadata_propagation_max_ms=1_000,
            topic_metadata_refresh_fast_interval_ms=50,
        )
        done = subprocess.run(command, input=b"\n".join(lines) + b"\n", capture_output=True, timeout=DEADLINE)
        failed = _FAILED.search(done.stderr.decode(errors="replace"))
        if failed or done.returncode:
            why = ((failed and (failed["why"] or failed["error"])) or done.stderr.decode(errors="replace")).strip()
            raise Refused(_NAMES.get(why, why))

    def consume(self, topic: str, count: int, at: At = BEGINNING, partition: int | None = 0) -> list[Record]:
        start = {"beginning": "beginning", "offset": str(at.number), "timestamp": f"s@{at.number}"}[at.kind]
        place = [] if partition is None else ["-p", str(partition)]
        command = self._command("-C", "-J", "-q", "-t", topic, *place, "-o", start, "-c", str(count))
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == 0, done.stderr
        return [_record(line) for line in done.stdout.splitlines()]

    def _group_command(self, group: str, topic: str, *arguments: str, **settings: object) -> list[str]:
        return self._command(
            *("-J", "-u", *arguments, "-G", group, topic),
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            **{"auto_offset_reset": "earliest", **settings},
        )

    def join(
        self, group: str, topic: str, *, latest: bool = False, instance: str | None = None, strategy: str = "range"
    ) -> Member:
        settings: dict[str, object] = {
            "partition_assignment_strategy": {"cooperative": "cooperative-sticky"}.get(strategy, strategy),
            "auto_offset_reset": "latest" if latest else "earliest",
        }
        if instance:
            settings["group_instance_id"] = instance
        return GroupMember(self._group_command(group, topic, **settings))

    def consume_in_group(self, group: str, topic: str, count: int) -> list[Record]:
        member = GroupMember(self._group_command(group, topic, "-c", str(count)))  # commits when it ends
        member.wait(DEADLINE)
        wait_for_records(member, count)
        return member.records

    def topics(self) -> dict[str, int]:
        command = self._command("-L", "-J")
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
        return {told["topic"]: len(told["partitions"]) for told in json.loads(done.stdout)["topics"]}
