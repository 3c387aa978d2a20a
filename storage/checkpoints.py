"""Kafka's small text files: offset checkpoints and properties.

A checkpoint has a version line (0), a line with the number of entries, and one entry a line. Kafka's name partitions by
topic and number. A name is not an identity, so a file of our own, written after them, has the topic id that each entry
belongs to: an entry of a partition whose folder has another id is of a deleted topic, and counts for nothing.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from barnabas.storage.io import Io, read_file, write_file
from barnabas.storage.layout import CLEANED_FILE, LOG_STARTS_FILE, METADATA_FILE, RECOVERY_POINTS_FILE, TOPIC_IDS_FILE
from barnabas.storage.report import Tell, tell_logging
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.properties import parse_properties

NO_TOPIC_ID = "A" * 22
_TOPIC_ID = re.compile(rb"version: 0\ntopic_id: ([\w-]{22})\n")


@dataclass
class Checkpoints:
    """What is stated of each partition: how far it is durable, where it starts if not at its first segment, how far it
    is compacted, and the id of its topic.

    `ids` is None where nothing states them: a directory of Kafka's, or of an earlier version.
    """

    points: dict[TopicPartition, int] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ids: dict[TopicPartition, str] | None = field(default_factory=dict)
    cleaned: dict[TopicPartition, int] = field(default_factory=dict)

    def states(self, key: TopicPartition) -> bool:
        """Whether anything is stated of a partition; only then its topic's id matters."""
        return key in self.points or key in self.starts or key in self.cleaned

    def of(self, key: TopicPartition, topic_id: str) -> tuple[int, int]:
        """(log start offset, recovery point) of the partition, as far as it is the one that was meant; else zeros."""
        if not self._is_meant(key, topic_id):
            return 0, 0
        return self.starts.get(key, 0), self.points.get(key, 0)

    def cleaned_of(self, key: TopicPartition, topic_id: str) -> int:
        """How far the partition is compacted, as far as it is the one that was meant; else 0."""
        return self.cleaned.get(key, 0) if self._is_meant(key, topic_id) else 0

    def _is_meant(self, key: TopicPartition, topic_id: str) -> bool:
        return self.ids is None or self.ids.get(key) == (topic_id or NO_TOPIC_ID)


def read_checkpoints(io: Io, path: str, tell: Tell = tell_logging) -> Checkpoints:
    """The checkpoints of the data directory `path`. A damaged one is reported, and counts as empty."""
    ids: dict[TopicPartition, str] | None = {}
    try:
        lines = _entries(io, os.path.join(path, TOPIC_IDS_FILE))
        ids = None if lines is None else {(topic, int(number)): topic_id for topic, number, topic_id in lines}
    except (ValueError, OSError) as error:
        tell("checkpoint.damaged", file=TOPIC_IDS_FILE, reason=error, action="no checkpoint is used")
    return Checkpoints(
        read_offsets(io, os.path.join(path, RECOVERY_POINTS_FILE), tell),
        read_offsets(io, os.path.join(path, LOG_STARTS_FILE), tell),
        ids,
        read_offsets(io, os.path.join(path, CLEANED_FILE), tell),
    )


def write_checkpoints(io: Io, path: str, found: Checkpoints, before: Checkpoints) -> None:
    """Put `found` on disk, where `before` is.

    The ids come last: a crash in between leaves entries of a new topic under an old id, which then count for nothing.
    """
    write_offsets(io, os.path.join(path, RECOVERY_POINTS_FILE), found.points)
    write_offsets(io, os.path.join(path, LOG_STARTS_FILE), found.starts)
    if found.cleaned != before.cleaned:
        write_offsets(io, os.path.join(path, CLEANED_FILE), found.cleaned)
    if found.ids != before.ids:
        write_ids(io, path, found)


def write_ids(io: Io, path: str, found: Checkpoints) -> None:
    lines = [f"{topic} {partition} {topic_id}" for (topic, partition), topic_id in (found.ids or {}).items()]
    write_lines(io, os.path.join(path, TOPIC_IDS_FILE), lines, sync=True)


def read_offsets(io: Io, path: str, tell: Tell = tell_logging) -> dict[TopicPartition, int]:
    """`topic partition offset` lines.

    A damaged file is reported and counts as empty, which costs a longer scan (recovery points), shows deleted records
    again (log starts) or has logs compacted anew.
    """
    try:
        found = {}
        for topic, partition, offset in _entries(io, path) or []:
            found[topic, int(partition)] = int(offset)
            if int(offset) < 0:
                raise ValueError(f"offset {offset}")
        return found
    except (ValueError, OSError) as error:
        tell("checkpoint.damaged", file=os.path.basename(path), reason=error, action="ignored; it is written anew")
        return {}


def write_offsets(io: Io, path: str, offsets: dict[TopicPartition, int]) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    write_lines(io, path, lines, sync=True)


def _entries(io: Io, path: str) -> list[list[str]] | None:
    """The entries of a checkpoint file as fields, None if there is no file. Raises ValueError if it is damaged."""
    try:
        lines = read_file(io, path).decode().splitlines()
    except FileNotFoundError:
        return None
    try:
        version, count = int(lines[0]), int(lines[1])
    except (ValueError, IndexError):
        raise ValueError("it does not begin with a version and a count") from None
    if version or count != len(lines) - 2:
        raise ValueError(f"version {version} with {len(lines) - 2} of {count} entries")
    return [line.split() for line in lines[2:]]


def read_lines(io: Io, path: str) -> list[list[str]]:
    """The entries of a checkpoint file as fields; empty when the file is absent or not a whole checkpoint."""
    try:
        return _entries(io, path) or []
    except ValueError:
        return []


def write_lines(io: Io, path: str, lines: list[str], *, sync: bool, sync_data: bool = False) -> None:
    data = "\n".join(["0", str(len(lines)), *lines, ""]).encode()
    write_file(io, path, data, sync=sync, sync_data=sync_data)


def read_properties(io: Io, path: str) -> dict[str, str]:
    """A small Java properties file. Raises FileNotFoundError, ValueError for what is no text."""
    return parse_properties(read_file(io, path).decode())


def read_topic_id(io: Io, directory: str) -> str:
    """The id of a partition's topic as `partition.metadata` has it, in URL-safe base64; empty where it has none.

    Raises OSError.
    """
    try:
        data = read_file(io, os.path.join(directory, METADATA_FILE))
        found = _TOPIC_ID.fullmatch(data)  # as Kafka writes it; any other way to write it is read, too
        return found[1].decode() if found else parse_properties(data.decode()).get("topic_id", "")
    except (FileNotFoundError, ValueError):
        return ""


def write_properties(io: Io, path: str, properties: dict[str, str], separator: str = "=") -> None:
    text = "".join(f"{name}{separator}{value}\n" for name, value in properties.items())
    write_file(io, path, text.encode(), sync=True)
