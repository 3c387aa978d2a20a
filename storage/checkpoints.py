"""Kafka's small text files: offset checkpoints and properties.

A checkpoint has a version line (0), a line with the number of entries, and one entry a line.
"""

from __future__ import annotations

import os

from storage.io import Io, read_file, write_file
from storage.layout import METADATA_FILE


def read_offsets(io: Io, path: str) -> dict[tuple[str, int], int]:
    """`topic partition offset` lines; an absent or damaged file counts as empty, which only costs a longer scan."""
    found = {}
    for fields in read_lines(io, path):
        if len(fields) == 3:
            found[(fields[0], int(fields[1]))] = int(fields[2])
    return found


def write_offsets(io: Io, path: str, offsets: dict[tuple[str, int], int]) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    write_lines(io, path, lines, sync=True)


def read_lines(io: Io, path: str) -> list[list[str]]:
    """The entries of a checkpoint file as fields; empty when the file is absent or not a whole checkpoint."""
    try:
        lines = read_file(io, path).decode().splitlines()
        if int(lines[0]) != 0 or len(lines) < 2 + int(lines[1]):
            return []
        return [line.split() for line in lines[2 : 2 + int(lines[1])]]
    except (FileNotFoundError, ValueError, IndexError):
        return []


def write_lines(io: Io, path: str, lines: list[str], *, sync: bool) -> None:
    write_file(io, path, "\n".join(["0", str(len(lines)), *lines, ""]).encode(), sync=sync)


def read_properties(io: Io, path: str) -> dict[str, str]:
    """`name=value` (or `name: value`) lines; raises FileNotFoundError."""
    found = {}
    for line in read_file(io, path).decode().splitlines():
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        at = min((i for i in (line.find("="), line.find(":")) if i >= 0), default=-1)
        if at > 0:
            found[line[:at].strip()] = line[at + 1 :].strip()
    return found


def read_topic_id(io: Io, directory: str) -> str:
    """The id of a partition's topic as `partition.metadata` has it, in URL-safe base64; empty where it has none."""
    try:
        return read_properties(io, os.path.join(directory, METADATA_FILE)).get("topic_id", "")
    except FileNotFoundError:
        return ""


def write_properties(io: Io, path: str, properties: dict[str, str], separator: str = "=") -> None:
    text = "".join(f"{name}{separator}{value}\n" for name, value in properties.items())
    write_file(io, path, text.encode(), sync=True)
