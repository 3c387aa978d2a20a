"""A second place for committed offsets, beside the log or instead of it: what a coordinator asks of whoever keeps it.

Beside the log, which comes first: what is committed is told there (`changed`), and the answer waits (`after`) until it
is written there or that is given up. Instead of the log (`alone`): commits go there only (`store`).

What both places say of a position becomes one answer in `newest`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records.offset_commit import OffsetCommitValue

Change = tuple[TopicPartition, OffsetCommitValue | None]  # None: forget it
Done = Callable[[ErrorCode], None]
#: Positions, by group.
Places = Mapping[str, Sequence[TopicPartition]]


class Elsewhere(Protocol):
    """The other place. All calls are made from the coordinator's thread, and give back at once."""

    @property
    def alone(self) -> bool:
        """Whether it is the only place."""

    def changed(self, group_id: str, changed: Sequence[Change]) -> None:
        """This is in the log now."""

    def after(self, group_id: str, changed: Sequence[Change], then: Callable[[], None]) -> None:
        """Call once: when what was told of these is there, or waiting for it is given up."""

    def store(self, group_id: str, changed: Sequence[Change], done: Done) -> None:
        """Keep these there alone. `done` is called once, with an error if that is not known to have been done."""

    def clear(self, places: Places, before_ms: int, then: Callable[[Places | None], None]) -> None:
        """Remove positions that nobody has written there since a time.

        `then` hears, once, which of them are gone; None if nothing can be removed now.
        """

    def loaded(self, partition: int) -> None:
        """A partition of the offsets topic has been read: what it says may be newer than what is there."""

    def unloaded(self, partition: int) -> None:
        """Another coordinator has it from now on: what is on its way of its groups is not to be written any more."""


class Seen(NamedTuple):
    """A position as it stands elsewhere, and when it was written."""

    offset: int
    written_ms: int


def newest(log: OffsetCommitValue | None, there: Seen | None, *, in_step: bool) -> OffsetCommitValue | None:
    """The position that counts: the larger one, as consumers with dual commit have always taken it.

    `in_step` says that the log's position has been written there. Then a larger one is somebody else's. If not, it may
    be an older one, from before a rewind that has not been written there: the later one of the two counts.
    """
    if there is None:
        return log
    if log is not None and (log.offset >= there.offset or (not in_step and there.written_ms < log.commit_timestamp)):
        return log
    return OffsetCommitValue(offset=there.offset, commit_timestamp=there.written_ms)
