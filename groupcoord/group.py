"""What the coordinator asks of any group, whichever protocol its members use.

The classic protocol's groups are `classic.group.ClassicGroup`. Groups of the newer protocols (consumer, share, streams)
stand beside it: offsets, retention, ListGroups, DescribeGroups and DeleteGroups know groups only by this interface.
Membership requests belong to one protocol each, and go to its own groups only. Building a group from its records also
belongs to its type, because each type has its own record kinds: see `GroupCoordinator.finish_load`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from barnabas.groupcoord.config import GroupConfig
from barnabas.groupcoord.deadlines import Deadlines
from barnabas.groupcoord.log.records import CoordinatorRecord
from barnabas.groupcoord.memory_budget import MemoryBudget
from barnabas.groupcoord.outbox import Outbox
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_groups import DescribedGroup


class OffsetExpiration(NamedTuple):
    """The start time of the age of a group's offsets (KIP-211)."""

    since_ms: int | None  # one time for all; None: the time of each commit


class Group(Protocol):
    """One group. A method that serves a client's request raises KafkaError to refuse it."""

    @property
    def group_id(self) -> str: ...

    @property
    def group_type(self) -> str:
        """The type as in ListGroups: "classic", "consumer", "share" or "streams"."""

    @property
    def protocol_type(self) -> str | None:
        """The kind of members, such as "consumer" or "connect"; None while it is unknown."""

    @property
    def state_name(self) -> str:
        """The state as in ListGroups and DescribeGroups, such as "Stable"."""

    @property
    def member_count(self) -> int: ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, and so may be deleted."""

    @property
    def is_idle(self) -> bool:
        """Whether it is empty and expects no member. It may then be forgotten together with its offsets."""

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member consumes the topic; assumed if the subscriptions are unknown."""

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool = False
    ) -> None:
        """OffsetCommit, TxnOffsetCommit: check that this sender may commit, and renew its session.

        In groups of the newer protocols, `generation` is the member epoch. A producer commits in a transaction, for a
        member that it may leave out.
        """

    def check_offset_delete(self) -> None:
        """OffsetDelete: check that offsets of unsubscribed topics may be deleted."""

    def offset_expiration(self) -> OffsetExpiration | None:
        """How the offsets of unsubscribed topics age now; None if they do not."""

    def describe(self) -> DescribedGroup:
        """DescribeGroups. Raises KafkaError GROUP_ID_NOT_FOUND if that API does not cover groups of this type."""

    def records(self) -> list[CoordinatorRecord]:
        """The records for the group's current state."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """Tombstones for all of the group's records in the log, except its offsets."""

    def shut_down(self, error: ErrorCode) -> None:
        """The group is deleted or has moved: answer all waiting requests with this error; forget members and timers."""


class Persist(Protocol):
    """Writes a group's records together. `done` is called once, when they are durable or have failed."""

    def __call__(
        self, group_id: str, records: Sequence[CoordinatorRecord], done: Callable[[ErrorCode], None]
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All that groups and the parts of a coordinator use from outside."""

    config: GroupConfig
    deadlines: Deadlines
    outbox: Outbox
    persist: Persist
    memory: MemoryBudget
    wall_ms: Callable[[], int]
    new_suffix: Callable[[], str]  # returns a fresh unique part of a member id
