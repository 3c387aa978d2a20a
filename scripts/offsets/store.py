"""What a place that keeps committed offsets can do, whichever it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Position(NamedTuple):
    """The offset of the next record that a group reads, and what it notes beside it. ZooKeeper has the offset only."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class Change(NamedTuple):
    """What stands there, and what is to: None for no position."""

    old: Position | None
    new: Position | None


class Problem(NamedTuple):
    """Something that is wrong with one thing; the rest goes on."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


class Bounds(NamedTuple):
    """The offsets of a log: the first record's, and that behind the last one."""

    start: int
    end: int


class OffsetStore(Protocol):
    """A place with offsets. Its methods raise ClientError where the place itself cannot be had."""

    @property
    def name(self) -> str:
        """Its address, without credentials."""

    @property
    def problems(self) -> list[Problem]:
        """What was found so far."""

    def groups(self) -> list[str]:
        """All groups that have, or may have, offsets."""

    def read(self, group: str) -> dict[Partition, Position]:
        """All positions of a group; what cannot be read is a problem."""

    def live_members(self, group: str) -> int:
        """How many members a group has now: they would commit over what is written."""

    def write(self, group: str, changes: Mapping[Partition, Change]) -> dict[Partition, str]:
        """Put new positions where the old ones still stand; the reason for each one that was not written."""

    def bounds(self, partitions: Iterable[Partition]) -> Mapping[Partition, Bounds | None] | None:
        """The logs of partitions, None for one that is not there. None for a place without logs."""

    def close(self) -> None:
        """Let go of connections."""
