"""One member of a classic group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.groupcoord.deadlines import Deadline
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.sync_group import SyncGroupResponse

JoinReply = Callable[[JoinGroupResponse], None]
SyncReply = Callable[[SyncGroupResponse], None]


class WaitingJoin(NamedTuple):
    """An unanswered JoinGroup. Its version decides on details of the answer."""

    version: int
    reply: JoinReply


@dataclass(slots=True, eq=False)
class Member:
    """Its identity, its protocols, its assignment, and its requests that wait for an answer."""

    member_id: str
    instance_id: str | None  # group.instance.id: set for a static member (KIP-345)
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: dict[str, bytes]  # name -> metadata, in the member's order of preference
    session: Deadline
    assignment: bytes = b""
    client: str = ""  # whose share of the memory it uses
    weight: int = 0  # bytes counted for it
    is_new: bool = False  # no successful join has told it its member id yet
    waiting_join: WaitingJoin | None = field(default=None, repr=False)
    waiting_sync: SyncReply | None = field(default=None, repr=False)

    def vote(self, candidates: set[str]) -> str:
        """The first of its protocols that all members have."""
        return next(name for name in self.protocols if name in candidates)

    def same_protocols(self, protocols: dict[str, bytes]) -> bool:
        """Whether protocols, metadata and order of preference are the same."""
        return list(self.protocols.items()) == list(protocols.items())
