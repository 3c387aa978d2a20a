"""What the coordinator asks of any group, whichever protocol its members speak.

The classic protocol's groups are `classic_group.ClassicGroup`. Groups of the newer protocols (consumer, share, streams)
stand beside it: offsets, retention, ListGroups, DescribeGroups and DeleteGroups know a group by this protocol alone.
Membership requests belong to one protocol each and go to its own groups only. How a group is built from its records
belongs to its type as well, as each has record kinds of its own: see `GroupCoordinator.finish_load`.
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
    """From when the age of a group's offsets counts (KIP-211)."""

    since_ms: int | None  # one time for all; None: each one's own commit


class Group(Protocol):
    """One group. A method that a client's request ends in raises KafkaError to refuse it."""

    @property
    def group_id(self) -> str: ...

    @property
    def group_type(self) -> str:
        """As ListGroups names it: "classic", "consumer", "share" or "streams"."""

    @property
    def protocol_type(self) -> str | None:
        """What the members are, such as "consumer" or "connect"; None as long as that is not known."""

    @property
    def state_name(self) -> str:
        """As ListGroups and DescribeGroups name it, such as "Stable"."""

    @property
    def member_count(self) -> int: ...

    @property
    def is_empty(self) -> bool:
        """It has no members: it may be deleted."""

    @property
    def is_idle(self) -> bool:
        """It is empty, and nobody is about to become a member: it may be forgotten when its offsets are."""

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member consumes the topic; assumed where the subscriptions cannot be known."""

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool = False
    ) -> None:
        """OffsetCommit, TxnOffsetCommit: whether this sender may commit. It counts as heard of then.

        `generation` is the member epoch in groups of the newer protocols. A producer commits in a transaction, for a
        member that it may not name.
        """

    def check_offset_delete(self) -> None:
        """OffsetDelete: whether offsets may be deleted, of topics that are not subscribed."""

    def offset_expiration(self) -> OffsetExpiration | None:
        """How offsets of topics that are not subscribed age now; None if they do not."""

    def describe(self) -> DescribedGroup:
        """DescribeGroups. Raises KafkaError GROUP_ID_NOT_FOUND if that API is not for groups of this type."""

    def records(self) -> list[CoordinatorRecord]:
        """What the log is to say of the group as it is now."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """What takes back all that the log may say of the group, apart from its offsets."""

    def shut_down(self, error: ErrorCode) -> None:
        """It is deleted or coordinated elsewhere: answer all that waits with this error, forget members and timers."""


class Persist(Protocol):
    """Writes a group's records together; `done` is called once, when they are durable or have failed."""

    def __call__(
        self, group_id: str, records: Sequence[CoordinatorRecord], done: Callable[[ErrorCode], None]
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All that groups, and the parts of a coordinator, touch outside themselves."""

    config: GroupConfig
    deadlines: Deadlines
    outbox: Outbox
    persist: Persist
    memory: MemoryBudget
    wall_ms: Callable[[], int]
    new_suffix: Callable[[], str]  # a fresh unique part of a member id
