"""The groups and offsets of one partition of `__consumer_offsets`, as they stand in memory."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, Protocol

from barnabas.groupcoord.group import ClassicGroup
from barnabas.groupcoord.image import OffsetKey
from barnabas.wire.records.offset_commit import OffsetCommitValue

TopicPartition = tuple[str, int]


class Topic(NamedTuple):
    """What a coordinator needs to know of a topic.

    `since_ms`: when an earlier topic of the same name was last deleted. An offset that was committed before, and does
    not say for which topic id, was of that one.
    """

    name: str
    topic_id: bytes
    partitions: int
    since_ms: int = -1


class Topics(Protocol):
    """The topics that exist now."""

    def by_name(self, name: str) -> Topic | None: ...

    def by_id(self, topic_id: bytes) -> Topic | None: ...


class Offsets:
    """A group's committed offsets, and which of them are about to change."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, OffsetCommitValue] = {}
        self.in_flight: Counter[TopicPartition] = Counter()  # handed to the store, not durable yet
        self.unstable: Counter[TopicPartition] = Counter()  # written by transactions that have not ended

    def apply(self, where: TopicPartition, value: OffsetCommitValue | None) -> None:
        if value is None:
            self.committed.pop(where, None)
        else:
            self.committed[where] = value

    def take_off(self, places: list[TopicPartition]) -> None:
        self.in_flight.update(places)

    def land(self, places: list[TopicPartition]) -> None:
        _subtract(self.in_flight, places)

    def settle(self, places: list[TopicPartition]) -> None:
        _subtract(self.unstable, places)

    def places(self) -> list[TopicPartition]:
        """All partitions that the log has, or is about to have, an offset for."""
        return list(dict.fromkeys([*self.committed, *self.in_flight, *self.unstable]))

    @property
    def is_empty(self) -> bool:
        return not (self.committed or self.in_flight or self.unstable)


def _subtract(counter: Counter[TopicPartition], places: list[TopicPartition]) -> None:
    for where in places:
        counter[where] -= 1
        if counter[where] <= 0:
            del counter[where]


class Shard:
    """One partition; `is_loaded` when the log has been read to its end."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.is_loaded = False
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets: dict[str, Offsets] = {}
        self.open_transactions: dict[int, dict[OffsetKey, OffsetCommitValue | None]] = {}

    def offsets_of(self, group_id: str) -> Offsets:
        """The offsets of a group, to be added to."""
        return self.offsets.setdefault(group_id, Offsets())

    def tidy(self, group_id: str) -> None:
        """Forget the entry of a group that has no offsets."""
        offsets = self.offsets.get(group_id)
        if offsets is not None and offsets.is_empty:
            del self.offsets[group_id]
