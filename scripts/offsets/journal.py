"""Records the old positions on disk before each write; `barnabas offsets undo` puts them back.

The journal is a file of JSON lines. The first line names the store; each further line is a change that was about to be
made. After a kill, the journal may list changes that were not made, so undo checks the current positions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.client.errors import ClientError
from barnabas.scripts.offsets.store import Change, Partition, Position

_MARK = "barnabas-offsets-journal"


class Entry(NamedTuple):
    """One change of one group."""

    group: str
    partition: Partition
    change: Change


class Journal:
    """A journal that is being written. An existing one for the same store is continued."""

    def __init__(self, path: Path, place: str) -> None:
        """Raises ClientError if the file cannot be written or belongs to another store."""
        self.path = path
        if path.exists() and path.stat().st_size:
            told, _ = read(path)
            if told != place:
                raise ClientError(f"{path} is the journal of {told}, not of {place}: give another with --journal")
        try:
            self._file = open(path, "ab")  # noqa: SIM115  closed by `close`
            if not path.stat().st_size:
                self._write([{_MARK: 1, "place": place}])
            elif not path.read_bytes().endswith(b"\n"):  # a kill cut its last line
                self._file.write(b"\n")
        except OSError as error:
            raise ClientError(f"{path}: {error.strerror}") from None

    def note(self, group: str, changes: Mapping[Partition, Change]) -> None:
        """Record changes. They are on disk when this returns. Raises ClientError."""
        try:
            self._write(
                {"group": group, "topic": place.topic, "partition": place.number, "old": change.old, "new": change.new}
                for place, change in changes.items()
            )
        except OSError as error:
            raise ClientError(f"{self.path}: {error.strerror}: nothing more was changed") from None

    def _write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        for line in lines:
            self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file. Everything is on disk already."""
        self._file.close()


def read(path: Path) -> tuple[str, list[Entry]]:
    """The store, and its changes in order. A line that a kill cut off is skipped. Raises ClientError."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ClientError(f"{path}: {error.strerror}") from None
    try:
        head = json.loads(lines[0])
        place = str(head["place"])
        assert head[_MARK] == 1
    except (ValueError, KeyError, TypeError, AssertionError):
        raise ClientError(f"{path} is not a journal of barnabas offsets") from None
    entries = []
    for line in lines[1:]:
        try:
            told = json.loads(line)
            partition = Partition(str(told["topic"]), int(told["partition"]))
            change = Change(*(None if told[key] is None else Position(*told[key]) for key in ("old", "new")))
            entries.append(Entry(str(told["group"]), partition, change))
        except (ValueError, KeyError, TypeError):
            continue
    return place, entries


class Undo(NamedTuple):
    """The position before a partition's first change, and the positions written since."""

    before: Position | None
    written: list[Position | None]


def undoing(entries: Iterable[Entry]) -> dict[str, dict[Partition, Undo]]:
    """How to restore the initial positions, by group and partition."""
    found: dict[str, dict[Partition, Undo]] = {}
    for group, partition, change in entries:
        undo = found.setdefault(group, {}).setdefault(partition, Undo(change.old, []))
        undo.written.append(change.new)
    return found
