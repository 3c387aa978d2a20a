"""The memory that members and groups may use, for all groups of a coordinator together.

Any client may join any number of groups, under any names, with any bytes as metadata, and is remembered for its session
timeout even if it has left. Kafka limits none of this. Here its cost is counted: no client (that is, no address) may
take more than it leaves free for the others (`groupcoord.shares`). Existing members always stay.

A client that has used up its share gets more only if some of its own newcomers can go: ids that were given out but
never used, and members that have never had an assignment, both if they have been silent for a while. Real consumers
return, sync and send heartbeats every few seconds. While such newcomers exist, the refusal is
COORDINATOR_NOT_AVAILABLE, after which clients retry; otherwise it is GROUP_MAX_SIZE_REACHED, and an operator must act.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from barnabas.groupcoord.classic.member import Member
from barnabas.groupcoord.shares import Shares
from barnabas.wire.errors import ErrorCode, KafkaError

# The size of a group, a member and an unused member id besides their names and bytes: measured, then rounded up.
GROUP_BYTES = 4000
MEMBER_BYTES = 2000
PENDING_BYTES = 1000


# How long a newcomer must be silent before it may be dropped, and how many are checked for one request.
NEWCOMER_SECONDS = 10.0
_MOST_LOOKED_AT = 100


class Newcomer(NamedTuple):
    """Someone who may be dropped for room. `heard` returns when it was last heard from; None while it waits for us."""

    heard: Callable[[], float | None]
    drop: Callable[[], None]


class MemoryBudget:
    """Counts bytes. `check` refuses; `take` only counts what was checked before or must be accepted."""

    def __init__(self, total: int, clock: Callable[[], float]) -> None:
        self._shares = Shares(total)
        self._clock = clock
        self._newcomers: dict[str, dict[Hashable, Newcomer]] = {}  # by client, the oldest first

    @property
    def used(self) -> int:
        return self._shares.used

    def check(self, client: str, size: int) -> None:
        """Raises KafkaError if a client has no room for this many bytes, even after dropping newcomers."""
        if size <= self._shares.spare(client):
            return
        self._make_room(client, size)
        if size > self._shares.spare(client):
            told = f"{client} has {self._shares.of(client)} bytes, and {self._shares.free} are free for all groups"
            retriable = client in self._newcomers
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if retriable else ErrorCode.GROUP_MAX_SIZE_REACHED
            raise KafkaError(code, told)

    def take(self, client: str, size: int) -> None:
        """Count bytes as used; a negative number releases them."""
        self._shares.take(client, size)

    # --- newcomers ----------------------------------------------------------------------------------------------------

    def expect(self, client: str, key: Hashable, newcomer: Newcomer) -> None:
        """Register a newcomer under its own key. It has yet to show that it stays."""
        self._newcomers.setdefault(client, {})[key] = newcomer

    def settle(self, client: str, key: Hashable) -> None:
        """The newcomer stays, or is gone. Does nothing for an unknown key."""
        of = self._newcomers.get(client)
        if of is not None and of.pop(key, None) is not None and not of:
            del self._newcomers[client]

    def _make_room(self, client: str, size: int) -> None:
        """Drop a client's newcomers, the oldest first. One that is spared moves to the end."""
        for _ in range(_MOST_LOOKED_AT):
            of = self._newcomers.get(client)
            if of is None or size <= self._shares.spare(client):
                return
            key = next(iter(of))
            heard = of[key].heard()
            if heard is None or self._clock() - heard < NEWCOMER_SECONDS:
                of[key] = of.pop(key)
            else:
                of[key].drop()
                self.settle(client, key)


def weight(member: Member) -> int:
    """The bytes that a member uses."""
    words = (member.member_id, member.instance_id or "", member.client_id, member.client_host)
    metadata = sum(len(name) + len(data) for name, data in member.protocols.items())
    return MEMBER_BYTES + sum(map(len, words)) + metadata + len(member.assignment)
