"""A second store for committed offsets, beside the log or instead of it: the interface for a coordinator.

Beside the log, the log comes first. The second store gets each commit (`changed`), and the answer waits (`after`) until
the commit is written there or waiting is given up. Instead of the log (`alone`), commits go only there (`store`).

`newest` decides between the positions of both stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records.offset_commit import OffsetCommitValue

Change = tuple[TopicPartition, OffsetCommitValue | None]  # None: delete it
Done = Callable[[ErrorCode], None]
#: Positions, by group.
Places = Mapping[str, Sequence[TopicPartition]]


class Elsewhere(Protocol):
    """The second store. All calls are made from the coordinator's thread, and return at once."""

    @property
    def alone(self) -> bool:
        """Whether it is the only store."""

    def changed(self, group_id: str, changed: Sequence[Change]) -> None:
        """These changes are now in the log."""

    def after(self, group_id: str, changed: Sequence[Change], then: Callable[[], None]) -> None:
        """Call `then` once, when these changes are written there or waiting is given up."""

    def store(self, group_id: str, changed: Sequence[Change], done: Done) -> None:
        """Store these only there. `done` is called once, with an error if they may not be stored."""

    def clear(self, places: Places, before_ms: int, then: Callable[[Places | None], None]) -> None:
        """Remove positions that nobody has written there since a time.

        `then` is called once, with those that are gone, or None if nothing can be removed now.
        """

    def loaded(self, partition: int) -> None:
        """A partition of the offsets topic was loaded. Its offsets may be newer than those in this store."""

    def unloaded(self, partition: int) -> None:
        """Another coordinator has it from now on: pending writes of its groups must not be done any more."""


class Seen(NamedTuple):
    """A position in the second store, and when it was written."""

    offset: int
    written_ms: int


def newest(log: OffsetCommitValue | None, there: Seen | None, *, in_step: bool) -> OffsetCommitValue | None:
    """The valid position: the larger one, as consumers with dual commit have always chosen.

    `in_step` means that the log's position has been written to the second store. A larger one there is then someone
    else's. If not in step, a larger one may date from before a rewind that was not written there, so the later one
    counts.
    """
    if there is None:
        return log
    if log is not None and (log.offset >= there.offset or (not in_step and there.written_ms < log.commit_timestamp)):
        return log
    return OffsetCommitValue(offset=there.offset, commit_timestamp=there.written_ms)
