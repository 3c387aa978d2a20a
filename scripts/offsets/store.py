"""The interface of every store of committed offsets."""

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
    """The offset of the next record that a group reads, and its metadata. ZooKeeper keeps the offset only."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class Change(NamedTuple):
    """The current position and the new one; None for no position."""

    old: Position | None
    new: Position | None


class Problem(NamedTuple):
    """A problem with one thing; the rest continues."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


class Bounds(NamedTuple):
    """The offsets of a log: that of the first record, and the one after the last record."""

    start: int
    end: int


class OffsetStore(Protocol):
    """A store of offsets. Its methods raise ClientError if the store cannot be reached."""

    @property
    def name(self) -> str:
        """Its address, without credentials."""

    @property
    def problems(self) -> list[Problem]:
        """The problems found so far."""

    def groups(self) -> list[str]:
        """All groups that have offsets, or may have some."""

    def read(self, group: str) -> dict[Partition, Position]:
        """All positions of a group; what is unreadable becomes a problem."""

    def live_members(self, group: str) -> int:
        """How many members a group has now. They would overwrite what is written here."""

    def write(self, group: str, changes: Mapping[Partition, Change]) -> dict[Partition, str]:
        """Write new positions where the old ones are unchanged. Returns the reason for each one not written."""

    def bounds(self, partitions: Iterable[Partition]) -> Mapping[Partition, Bounds | None] | None:
        """The bounds of each partition's log, None for a missing partition. None for a store without logs."""

    def close(self) -> None:
        """Close the connections."""
