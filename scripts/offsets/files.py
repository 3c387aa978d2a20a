"""Offsets in files: the format of Kafka's old ZooKeeper tools, the CSV of kafka-consumer-groups, and JSON.

    zk-tool  /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET      ExportZkOffsets, ImportZkOffsets (until Kafka 2.0)
    csv      GROUP,TOPIC,PARTITION,OFFSET                         kafka-consumer-groups --reset-offsets --export
             TOPIC,PARTITION,OFFSET                               ... of one group, which must be named
    json     with metadata and leader epochs

An unreadable line is a problem with its line number; the others count.
"""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Mapping
from typing import Any

from barnabas.client.errors import ClientError
from barnabas.client.zookeeper.layout import parse_number, parse_partition
from barnabas.scripts.offsets.store import Partition, Position, Problem

Offsets = dict[str, dict[Partition, Position]]
FORMATS = ("zk-tool", "csv", "json")
_ZK_PATH = re.compile(r"/consumers/([^/]+)/offsets/([^/]+)/([^/]+)")
_JSON_VERSION = 1


def render(offsets: Mapping[str, Mapping[Partition, Position]], form: str) -> str:
    """All offsets in one of the `FORMATS`, ordered by group, topic and partition."""
    rows = [
        (group, *place, position) for group in sorted(offsets) for place, position in sorted(offsets[group].items())
    ]
    if form == "zk-tool":
        return "".join(f"/consumers/{group}/offsets/{topic}/{index}:{at.offset}\n" for group, topic, index, at in rows)
    if form == "csv":
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows((group, topic, i, at.offset) for group, topic, i, at in rows)
        return out.getvalue()
    groups: dict[str, list[dict[str, Any]]] = {group: [] for group in sorted(offsets)}
    for group, topic, index, at in rows:
        groups[group].append({"topic": topic, "partition": index, **at._asdict()})
    told = {"barnabas-offsets": _JSON_VERSION, "exported_at_ms": time.time_ns() // 1_000_000, "groups": groups}
    return json.dumps(told, ensure_ascii=False, indent=1) + "\n"


def guess_format(text: str) -> str:
    """Guess a file's format from its beginning."""
    start = text.lstrip()[:1]
    return {"{": "json", "/": "zk-tool"}.get(start, "csv")


class Reading:
    """A file's offsets, and its problems."""

    def __init__(self, name: str) -> None:
        self.offsets: Offsets = {}
        self.problems: list[Problem] = []
        self._name = name
        self._said: dict[tuple[str, Partition], int] = {}

    def parse(self, text: str, form: str, *, group: str | None = None, compat: bool = False) -> None:
        """Read a text. `group` is for a CSV without groups. `compat`: a blank line ends it, as for ImportZkOffsets.

        Raises ClientError if the file has another format altogether.
        """
        if form == "json":
            self._json(text)
            return
        for number, line in enumerate(text.split("\n"), 1):
            line = line.removesuffix("\r")
            if not line.strip():
                if compat:
                    return
                if number <= text.count("\n"):
                    self._wrong(number, "the line is blank")
                continue
            try:
                self._add(number, *(_of_zk_tool(line) if form == "zk-tool" else _of_csv(line, group)))
            except ValueError as error:
                self._wrong(number, str(error))

    def _add(self, number: int, group: str, partition: Partition, position: Position) -> None:
        known = self.offsets.setdefault(group, {})
        if known.get(partition, position) != position:
            first = self._said[group, partition]
            raise ValueError(f"line {first} has another offset for {partition} of group {group}")
        known[partition] = position
        self._said.setdefault((group, partition), number)

    def _wrong(self, number: int, reason: str) -> None:
        self.problems.append(Problem(f"{self._name}, line {number}", reason))

    def _json(self, text: str) -> None:
        try:
            data = json.loads(text)
            groups = data["groups"]
            entries = [(group, entry) for group, found in groups.items() for entry in found]
            version = data["barnabas-offsets"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ClientError(f"{self._name} is not JSON of barnabas offsets export: {error}") from None
        if version != _JSON_VERSION:
            raise ClientError(f"{self._name} is of version {version}: this command reads version {_JSON_VERSION}")
        for number, (group, entry) in enumerate(entries, 1):
            try:
                partition = Partition(str(entry["topic"]), parse_partition(str(entry["partition"])))
                epoch = int(entry.get("leader_epoch", -1))
                position = Position(parse_number(str(entry["offset"])), str(entry.get("metadata") or ""), epoch)
                self._add(number, group, partition, position)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                self.problems.append(Problem(f"{self._name}, entry {number}", str(error)))


def _of_zk_tool(line: str) -> tuple[str, Partition, Position]:
    path, colon, offset = line.rpartition(":")
    found = _ZK_PATH.fullmatch(path)
    if not colon or not found:
        raise ValueError(f"expected /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET, not {line[:120]!r}")
    group, topic, index = found.groups()
    return group, Partition(topic, parse_partition(index)), Position(parse_number(offset))


def _of_csv(line: str, group: str | None) -> tuple[str, Partition, Position]:
    cells = next(csv.reader([line], strict=True), [])
    if len(cells) == 3:
        if group is None:
            raise ValueError("TOPIC,PARTITION,OFFSET names no group: give one with --group")
        cells = [group, *cells]
    if len(cells) != 4 or not all(cells):
        raise ValueError(f"expected GROUP,TOPIC,PARTITION,OFFSET, not {line[:120]!r}")
    return cells[0], Partition(cells[1], parse_partition(cells[2])), Position(parse_number(cells[3]))
