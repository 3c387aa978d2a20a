"""The memory that members and groups may take, all groups of a coordinator together.

Any client may join any number of groups, under any number of names, with whatever bytes it likes as metadata, and is
remembered for its session timeout even if it has left. Kafka bounds none of this. Here its cost is counted. No client,
which is an address, may take more than it leaves free to the others (`groupcoord.shares`); members that are there
already stay.

A client that has its share may take on more where something of its own makes room: ids that were given out and nobody
came back with, and members that have never had an assignment, once they have not been heard of for a while. Consumers
come back, sync and send heartbeats every few seconds. While there are such newcomers the refusal is
COORDINATOR_NOT_AVAILABLE, after which clients try again; else it is GROUP_MAX_SIZE_REACHED, and an operator must look.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from barnabas.groupcoord.classic.member import Member
from barnabas.groupcoord.shares import Shares
from barnabas.wire.errors import ErrorCode, KafkaError

# What a group, a member and a member id that was given out take beside their names and bytes: measured, rounded up.
GROUP_BYTES = 4000
MEMBER_BYTES = 2000
PENDING_BYTES = 1000


# For how long a newcomer is not heard of until it may go, and how many are looked at for one that wants room.
NEWCOMER_SECONDS = 10.0
_MOST_LOOKED_AT = 100


class Newcomer(NamedTuple):
    """Who may have to make room. `heard` gives when it was last heard of, None while it waits for us."""

    heard: Callable[[], float | None]
    drop: Callable[[], None]


class MemoryBudget:
    """Counts bytes. `check` refuses; `take` only counts, for what was checked before or must be let in."""

    def __init__(self, total: int, clock: Callable[[], float]) -> None:
        self._shares = Shares(total)
        self._clock = clock
        self._newcomers: dict[str, dict[Hashable, Newcomer]] = {}  # of each client, in the order in which they came

    @property
    def used(self) -> int:
        return self._shares.used

    def check(self, client: str, size: int) -> None:
        """Raises KafkaError if there is no room for this many bytes of a client, whatever makes room."""
        if size <= self._shares.spare(client):
            return
        self._make_room(client, size)
        if size > self._shares.spare(client):
            told = f"{client} has {self._shares.of(client)} bytes, and {self._shares.free} are free for all groups"
            retriable = client in self._newcomers
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if retriable else ErrorCode.GROUP_MAX_SIZE_REACHED
            raise KafkaError(code, told)

    def take(self, client: str, size: int) -> None:
        """Count bytes as used; what is negative is given back."""
        self._shares.take(client, size)

    # --- newcomers ----------------------------------------------------------------------------------------------------

    def expect(self, client: str, key: Hashable, newcomer: Newcomer) -> None:
        """Somebody has come, under a key of its own, who has yet to show that it stays."""
        self._newcomers.setdefault(client, {})[key] = newcomer

    def settle(self, client: str, key: Hashable) -> None:
        """It stays, or it is gone. Nothing happens for who is no newcomer."""
        of = self._newcomers.get(client)
        if of is not None and of.pop(key, None) is not None and not of:
            del self._newcomers[client]

    def _make_room(self, client: str, size: int) -> None:
        """Drop newcomers of a client, the oldest first. Who is spared is the last to be looked at again."""
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
    """What a member takes."""
    words = (member.member_id, member.instance_id or "", member.client_id, member.client_host)
    metadata = sum(len(name) + len(data) for name, data in member.protocols.items())
    return MEMBER_BYTES + sum(map(len, words)) + metadata + len(member.assignment)
