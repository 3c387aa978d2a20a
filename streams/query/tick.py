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
    """What a part keeps of a split."""
    return split[2:]


class Part(msgspec.Struct, frozen=True, array_like=True):
    """One task's work: splits of one partition that hold all records from `lo` to `hi`.

    Query by query, `ends` are the source's offsets from which on there are no results yet; `dead` are the same for dead
    letters, where their topic does not tell.
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
        """That of the source, whose name another topic may have had; none where there is nothing to read."""
        return self.splits[0][_TOPIC_ID] if self.splits else ""


class Tick(msgspec.Struct, frozen=True):
    """One run of a job."""

    producer_id: int
    parts: list[Part]  # by task number; a partition with nothing new has lo == hi
    writer_id: str = ""  # what proves to the broker that the driver writes
    rows: int = 0  # that Spark puts into one Arrow batch
    room: int = 0  # the bytes that these rows may have as they are read

    def encode(self) -> str:
        """As the property's value."""
        return msgspec.json.encode(self).decode()

    @property
    def bytes(self) -> int:
        """Bytes of log that are read."""
        return sum(end - start for part in self.parts for _, start, end, *_ in part.splits)

    @property
    def records(self) -> int:
        """An upper bound of the records in them."""
        return sum(part.hi - part.lo for part in self.parts)

    def splits(self, part: Part) -> list[Split]:
        """The splits of a task."""
        return [Split(part.source, part.partition, *split) for split in part.splits]


def current() -> tuple[Tick, int, bool]:
    """The tick that this task belongs to, its number, and whether an attempt of it has failed before."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("not in a task")
    told = context.getLocalProperty(PROPERTY)
    return msgspec.json.decode(told or "", type=Tick), context.partitionId(), context.attemptNumber() > 0
