"""Kafka's small text files: offset checkpoints and properties.

A checkpoint has a version line (0), a line with the number of entries, and one entry per line. Kafka's checkpoints
identify a partition by topic name and number. A topic can be deleted and created again under the same name, so a file
of our own, written after them, has the topic id of each entry. An entry whose id differs from that of the partition's
folder belongs to a deleted topic and is ignored.

Where several nodes share a directory, each has checkpoint files of its own. Its file of topic ids also says which turn
of the partition the node has or had, and whether it left the partition in order. `storage.stated` reads all of them.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeVar

from barnabas.storage.io import Io, read_file, write_file
from barnabas.storage.layout import CLEANED_FILE, LOG_STARTS_FILE, METADATA_FILE, RECOVERY_POINTS_FILE, TOPIC_IDS_FILE
from barnabas.storage.report import Tell, tell_logging
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.properties import parse_properties

V = TypeVar("V")
NO_TOPIC_ID = "A" * 22
_TOPIC_ID = re.compile(rb"version: 0\ntopic_id: ([\w-]{22})\n")


_OPEN, _CLOSED = "open", "closed"


class Turn(NamedTuple):
    """One node's time as owner of a partition. Nodes take turns, and each turn has a higher number than all before."""

    number: int
    #: The node gave the partition away, or stopped, with everything on disk: the next node need not recover it.
    closed: bool


class Line(NamedTuple):
    """All that the checkpoints say of one partition. `turn` is None unless several nodes share the directory."""

    topic_id: str
    turn: Turn | None
    point: int
    start: int = 0
    cleaned: int = 0


@dataclass
class Checkpoints:
    """What the checkpoints say of each partition: how far it is durable, where it starts if not at its first segment,
    how far it is compacted, and the id of its topic.

    `ids` is None if the directory has no file of ids: Kafka or an earlier version wrote it.
    """

    points: dict[TopicPartition, int] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ids: dict[TopicPartition, str] | None = field(default_factory=dict)
    cleaned: dict[TopicPartition, int] = field(default_factory=dict)
    #: Only if several nodes share the directory.
    turns: dict[TopicPartition, Turn] = field(default_factory=dict)
    #: The names of the files that could not be read.
    damaged: frozenset[str] = field(default=frozenset(), compare=False)

    def states(self, key: TopicPartition) -> bool:
        """Whether there is any entry for a partition. Only then does its topic's id matter."""
        return key in self.points or key in self.starts or key in self.cleaned

    def of(self, key: TopicPartition, topic_id: str) -> tuple[int, int]:
        """(log start offset, recovery point) of the partition; zeros if the entries belong to another topic id."""
        if not self.is_meant(key, topic_id):
            return 0, 0
        return self.starts.get(key, 0), self.points.get(key, 0)

    def cleaned_of(self, key: TopicPartition, topic_id: str) -> int:
        """How far the partition is compacted; 0 if the entry belongs to another topic id."""
        return self.cleaned.get(key, 0) if self.is_meant(key, topic_id) else 0

    def line(self, key: TopicPartition) -> Line | None:
        """The entries under a partition's name; None without a topic id."""
        topic_id = self.ids.get(key) if self.ids is not None else None
        if topic_id is None:
            return None
        point, start, cleaned = self.points.get(key, 0), self.starts.get(key, 0), self.cleaned.get(key, 0)
        return Line(topic_id, self.turns.get(key), point, start, cleaned)

    def keys(self) -> Iterator[TopicPartition]:
        """The partitions with entries; some of them twice."""
        return chain(self.ids or (), self.points)

    def with_lines(self, lines: Mapping[TopicPartition, Line | None]) -> Checkpoints:
        """A copy with other lines for some partitions; None removes a line. It shares the dicts that stay the same."""
        some = lines.items()
        return Checkpoints(
            _merged(self.points, {key: line and line.point for key, line in some}),
            _merged(self.starts, {key: (line and line.start) or None for key, line in some}),
            _merged(self.ids or {}, {key: line and line.topic_id for key, line in some}),
            _merged(self.cleaned, {key: (line and line.cleaned) or None for key, line in some}),
            _merged(self.turns, {key: line and line.turn for key, line in some}),
        )

    def is_meant(self, key: TopicPartition, topic_id: str) -> bool:
        """Whether the entries under a partition's name belong to the topic with that id."""
        return self.ids is None or self.ids.get(key) == (topic_id or NO_TOPIC_ID)


def _merged(before: dict[TopicPartition, V], changes: Mapping[TopicPartition, V | None]) -> dict[TopicPartition, V]:
    """`before` itself if the changes change nothing, else a changed copy. None removes an entry."""
    if all(before.get(key) == value for key, value in changes.items()):
        return before
    found = dict(before)
    for key, value in changes.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def read_checkpoints(io: Io, path: str, tell: Tell = tell_logging, within: str = "") -> Checkpoints:
    """Read the checkpoints in the folder `path`. A damaged one is reported, its name prefixed with `within`, and counts
    as empty.
    """
    ids: dict[TopicPartition, str] | None = {}
    turns: dict[TopicPartition, Turn] = {}
    damaged = set()
    try:
        lines = _entries(io, os.path.join(path, TOPIC_IDS_FILE))
        ids = None if lines is None else {(line[0], int(line[1])): line[2] for line in lines}
        turns = {(line[0], int(line[1])): _turn(line) for line in lines or [] if len(line) != 3}
    except (ValueError, IndexError, OSError) as error:
        ids, turns = {}, {}
        damaged.add(TOPIC_IDS_FILE)
        tell("checkpoint.damaged", file=within + TOPIC_IDS_FILE, reason=error, action="no checkpoint is used")
    found = {}
    for name in (RECOVERY_POINTS_FILE, LOG_STARTS_FILE, CLEANED_FILE):
        offsets = _offsets(io, os.path.join(path, name), tell, within)
        if offsets is None:
            damaged.add(name)
        found[name] = offsets or {}
    return Checkpoints(
        found[RECOVERY_POINTS_FILE],
        found[LOG_STARTS_FILE],
        ids,
        found[CLEANED_FILE],
        turns,
        frozenset(damaged),
    )


def _turn(line: list[str]) -> Turn:
    """The turn of an entry `topic partition topic-id turn open|closed`. Raises ValueError."""
    _, _, _, number, state = line
    if state not in (_OPEN, _CLOSED) or int(number) < 1:
        raise ValueError(f"turn {number} {state}")
    return Turn(int(number), state == _CLOSED)


def write_checkpoints(io: Io, path: str, found: Checkpoints, before: Checkpoints) -> None:
    """Write `found` to disk in place of `before`.

    The ids are written last. A crash in between leaves a new topic's entries under an old id, so they are ignored.
    """
    write_offsets(io, os.path.join(path, RECOVERY_POINTS_FILE), found.points)
    write_offsets(io, os.path.join(path, LOG_STARTS_FILE), found.starts)
    if _differ(found.cleaned, before.cleaned):
        write_offsets(io, os.path.join(path, CLEANED_FILE), found.cleaned)
    if _differ(found.ids, before.ids) or _differ(found.turns, before.turns):
        write_ids(io, path, found)


def _differ(one: object, other: object) -> bool:
    """Whether they differ. Large dicts are often the same object: a comparison of their content keeps the GIL."""
    return one is not other and one != other


def write_ids(io: Io, path: str, found: Checkpoints) -> None:
    lines = []
    for key, topic_id in (found.ids or {}).items():
        turn = found.turns.get(key)
        rest = "" if turn is None else f" {turn.number} {_CLOSED if turn.closed else _OPEN}"
        lines.append(f"{key[0]} {key[1]} {topic_id}{rest}")
    write_lines(io, os.path.join(path, TOPIC_IDS_FILE), lines, sync=True)


def read_offsets(io: Io, path: str, tell: Tell = tell_logging) -> dict[TopicPartition, int]:
    """Read a file of `topic partition offset` lines.

    A damaged file is reported and counts as empty. The cost depends on the file: a longer scan (recovery points),
    deleted records that show again (log starts), or logs that are compacted again.
    """
    return _offsets(io, path, tell, "") or {}


def _offsets(io: Io, path: str, tell: Tell, within: str) -> dict[TopicPartition, int] | None:
    """Like `read_offsets`, but gives None for a damaged file."""
    try:
        found = {}
        for topic, partition, offset in _entries(io, path) or []:
            found[topic, int(partition)] = int(offset)
            if int(offset) < 0:
                raise ValueError(f"offset {offset}")
        return found
    except (ValueError, OSError) as error:
        name = within + os.path.basename(path)
        tell("checkpoint.damaged", file=name, reason=error, action="ignored; it will be written again")
        return None


def write_offsets(io: Io, path: str, offsets: dict[TopicPartition, int]) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    write_lines(io, path, lines, sync=True)


def _entries(io: Io, path: str) -> list[list[str]] | None:
    """The fields of each entry of a checkpoint file; None if there is no file. Raises ValueError if it is damaged."""
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
    """The fields of each entry of a checkpoint file; empty if the file is absent or not a whole checkpoint."""
    try:
        return _entries(io, path) or []
    except ValueError:
        return []


def write_lines(io: Io, path: str, lines: list[str], *, sync: bool, sync_data: bool = False) -> None:
    data = "\n".join(["0", str(len(lines)), *lines, ""]).encode()
    write_file(io, path, data, sync=sync, sync_data=sync_data)


def read_properties(io: Io, path: str) -> dict[str, str]:
    """Read a small Java properties file. Raises FileNotFoundError, and ValueError if the file is not text."""
    return parse_properties(read_file(io, path).decode())


def read_topic_id(io: Io, directory: str) -> str:
    """The topic id in a partition's `partition.metadata`, in URL-safe base64; empty if there is none.

    Raises OSError.
    """
    try:
        data = read_file(io, os.path.join(directory, METADATA_FILE))
        found = _TOPIC_ID.fullmatch(data)  # as Kafka writes it; other spellings are read, too
        return found[1].decode() if found else parse_properties(data.decode()).get("topic_id", "")
    except (FileNotFoundError, ValueError):
        return ""


def decode_topic_id(text: str) -> bytes:
    """The result of `read_topic_id` as 16 bytes; zeros if it is not an id, for example cut off by a loss of power."""
    try:
        found = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        found = b""
    return found if len(found) == 16 else bytes(16)


def write_properties(io: Io, path: str, properties: dict[str, str], separator: str = "=") -> None:
    text = "".join(f"{name}{separator}{value}\n" for name, value in properties.items())
    write_file(io, path, text.encode(), sync=True)
