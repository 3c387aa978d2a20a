"""What the driver sends to the tasks of one tick. It travels as a local property of the Spark job, so the plan of the
job, with its functions, stays the same from tick to tick.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from pyspark import TaskContext

from barnabas.streams.wal import Split

PROPERTY = "barnabas.tick"

#: A split without its topic and partition: path, start, end, lo, hi, topic id, identity, aborted transactions.
Piece = tuple[str, int, int, int, int, str, str, tuple[tuple[int, int, int], ...]]
_TOPIC_ID: Literal[5] = 5


def piece_of(split: Split) -> Piece:
    """The fields of a split that a part keeps."""
    return split[2:]


class Part(msgspec.Struct, frozen=True, array_like=True):
    """One task's work: splits of one partition that hold all records from `lo` to `hi`.

    For each query, `ends` are the source offsets from which results are missing; `dead` are the same for dead letters,
    if their topic does not show it.
    """

    source: str
    partition: int
    lo: int
    hi: int
    splits: list[Piece]
    ends: list[int]
    dead: list[int] = []

    @property
    def topic_id(self) -> str:
        """The source's topic id, as another topic may have had its name; empty if there is nothing to read."""
        return self.splits[0][_TOPIC_ID] if self.splits else ""


class Tick(msgspec.Struct, frozen=True):
    """One run of a job."""

    producer_id: int
    parts: list[Part]  # by task number; a partition without new records has lo == hi
    writer_id: str = ""  # the driver's proof to the broker that it may write
    rows: int = 0  # the number that Spark puts into one Arrow batch
    room: int = 0  # the most bytes that these rows may have as read

    def encode(self) -> str:
        """The value of the property."""
        return msgspec.json.encode(self).decode()

    @property
    def bytes(self) -> int:
        """The bytes of log to read."""
        return sum(end - start for part in self.parts for _, start, end, *_ in part.splits)

    @property
    def records(self) -> int:
        """An upper bound of the records in them."""
        return sum(part.hi - part.lo for part in self.parts)

    def splits(self, part: Part) -> list[Split]:
        """The splits of a task."""
        return [Split(part.source, part.partition, *split) for split in part.splits]


def current() -> tuple[Tick, int, bool]:
    """The tick of this task, its number, and whether an earlier attempt has failed."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("not in a task")
    told = context.getLocalProperty(PROPERTY)
    return msgspec.json.decode(told or "", type=Tick), context.partitionId(), context.attemptNumber() > 0
