"""What stood there before each write, on disk before the write: `barnabas offsets undo` puts it back.

A file of JSON lines. The first names the place; each other one is a change that was about to be made. So after a kill
the journal may tell of changes that were not made: undo looks at what is there.
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
    """A journal that is being written. An older one of the same place goes on."""

    def __init__(self, path: Path, place: str) -> None:
        """Raises ClientError: the file cannot be written, or is of another place."""
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
        """On disk when this returns. Raises ClientError."""
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
        """All is on disk already."""
        self._file.close()


def read(path: Path) -> tuple[str, list[Entry]]:
    """The place, and the changes in their order. A line that a kill has cut is passed over. Raises ClientError."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ClientError(f"{path}: {error.strerror}") from None
    try:
        head = json.loads(lines[0])
        place = str(head["place"])
        assert head[_MARK] == 1
    except (ValueError, KeyError, TypeError, AssertionError):
        raise ClientError(f"{path} is no journal of barnabas offsets") from None
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
    """What stood there before the first change of a partition, and what was written since."""

    before: Position | None
    written: list[Position | None]


def undoing(entries: Iterable[Entry]) -> dict[str, dict[Partition, Undo]]:
    """How to get back to the beginning, by group and partition."""
    found: dict[str, dict[Partition, Undo]] = {}
    for group, partition, change in entries:
        undo = found.setdefault(group, {}).setdefault(partition, Undo(change.old, []))
        undo.written.append(change.new)
    return found
