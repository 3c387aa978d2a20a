"""The progress of an export, read from the folder that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pyarrow import parquet

from barnabas.streams.export.partition import Work
from barnabas.streams.export.target import finished, partition_folder, position


class Seen(NamedTuple):
    """What this run has written so far."""

    rows: int
    bytes: int
    done: int  # partitions
    part: float  # of the offsets to export, from 0 to 1

    def text(self, partitions: int) -> str:
        """The progress as text."""
        size = megabytes(self.bytes)
        return f"{self.part:.0%}, {self.rows:,} rows, {size}, {self.done} of {partitions} partitions"


class Progress:
    """Watches the partitions' files. Files that exist at its creation belong to an earlier run."""

    def __init__(self, to: Path, works: Sequence[Work]) -> None:
        self._folders = {work: partition_folder(to, work.key) for work in works}
        self._begun = {work: max(position(folder) or 0, work.earliest) for work, folder in self._folders.items()}
        self._rows: dict[Path, int] = {}

    def look(self) -> Seen:
        """Read the files' names, and the row counts of new ones."""
        rows = size = done = offsets = 0
        for work, folder in self._folders.items():
            reached = begun = self._begun[work]
            for span, path in finished(folder).items():
                if span.first >= begun:
                    if path not in self._rows:
                        self._rows[path] = parquet.read_metadata(path).num_rows
                    rows += self._rows[path]
                    size += path.stat().st_size
                    reached = span.last + 1
            offsets += reached - begun
            done += reached >= work.end
        total = sum(max(work.end - begun, 0) for work, begun in self._begun.items())
        return Seen(rows, size, done, offsets / total if total else 1.0)

    def told(self) -> tuple[float, str]:
        """The part that is done, and the progress as text."""
        seen = self.look()
        return seen.part, seen.text(len(self._folders))


def megabytes(size: int) -> str:
    """A number of bytes as text."""
    return f"{size / 1e6:,.1f} MB"
