"""The members of a classic group and their aggregates: pure data, without transitions.

Aggregates are kept here so that no barrier visits all members for each of them: how many joins are waiting, how many
members have each protocol, the member id of each group.instance.id, and the memory in use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from barnabas.groupcoord.classic.member import Member, WaitingJoin
from barnabas.groupcoord.deadlines import Deadline
from barnabas.groupcoord.group import Surroundings
from barnabas.groupcoord.memory_budget import PENDING_BYTES, Newcomer, weight
from barnabas.wire.codegen import message_codec
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.records.consumer_protocol import ConsumerProtocolSubscription
from barnabas.wire.schema import ProtocolError


@dataclass(slots=True, eq=False)
class Pending:
    """A member id that was given out: to which client, and until when it is valid."""

    client: str
    deadline: Deadline


class Members:
    """The members of a group, and the ids given to clients that have not yet joined with them (`pending`)."""

    def __init__(self, around: Surroundings) -> None:
        self.by_id: dict[str, Member] = {}
        self.static: dict[str, str] = {}  # group.instance.id -> member id
        self.pending: dict[str, Pending] = {}  # member ids given out, and until when they are valid
        self.joined = 0  # how many members have a waiting join
        self._supporters: Counter[str] = Counter()  # protocol -> how many members have it
        self._around = around

    # --- identity -----------------------------------------------------------------------------------------------------

    def check(self, member_id: str, instance_id: str | None) -> Member:
        """The member that a request claims to be from. Raises KafkaError if there is none or it is fenced."""
        if instance_id is not None:
            current = self.static.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no static member {instance_id}")
            if current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} is {current} now, not {member_id}")
        member = self.by_id.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {member_id}")
        return member

    def enrol(self, member: Member) -> None:
        self.by_id[member.member_id] = member
        self.weigh(member)
        self._supporters.update(member.protocols.keys())
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def unenrol(self, member: Member) -> None:
        del self.by_id[member.member_id]
        self._around.memory.take(member.client, -member.weight)
        self._around.memory.settle(member.client, member)
        member.weight = 0
        self._forget_protocols(member)
        member.session.drop()
        if member.instance_id is not None:
            del self.static[member.instance_id]

    def clear(self) -> None:
        """Remove all members, and release their memory."""
        for member_id in list(self.pending):
            self.forget_pending(member_id)
        for member in self.by_id.values():
            member.session.drop()
            self._around.memory.take(member.client, -member.weight)
            self._around.memory.settle(member.client, member)
        self.by_id.clear()
        self.static.clear()
        self._supporters.clear()

    def weigh(self, member: Member) -> None:
        """Update the memory counted for a member."""
        before, member.weight = member.weight, weight(member)
        self._around.memory.take(member.client, member.weight - before)

    # --- ids that were given out --------------------------------------------------------------------------------------

    def await_id(self, member_id: str, client: str, session_timeout_ms: int, expire: Callable[[], None]) -> None:
        """An id was given out. `expire` is called if nobody joins with it in time, or if memory is short."""
        now = self._around.deadlines.clock()
        deadline = self._around.deadlines.at(now + session_timeout_ms / 1000, expire)
        pending = self.pending[member_id] = Pending(client, deadline)
        self._around.memory.take(client, PENDING_BYTES)
        self._around.memory.expect(client, pending, Newcomer(lambda: now, expire))

    def forget_pending(self, member_id: str) -> None:
        pending = self.pending.pop(member_id, None)
        if pending is not None:
            pending.deadline.drop()
            self._around.memory.take(pending.client, -PENDING_BYTES)
            self._around.memory.settle(pending.client, pending)

    # --- waiting requests, sessions -----------------------------------------------------------------------------------

    def renew(self, member: Member) -> None:
        """The member was heard from: restart its session."""
        member.session.set(self._around.deadlines.clock() + member.session_timeout_ms / 1000)

    def wait_join(self, member: Member, waiting: WaitingJoin) -> None:
        member.waiting_join = waiting
        self.joined += 1

    def take_waiting_join(self, member: Member) -> WaitingJoin | None:
        waiting, member.waiting_join = member.waiting_join, None
        if waiting is not None:
            self.joined -= 1
        return waiting

    def rebalance_timeout(self) -> float:
        """The longest rebalance timeout of the members, in seconds."""
        return max((member.rebalance_timeout_ms for member in self.by_id.values()), default=0) / 1000

    # --- protocols ----------------------------------------------------------------------------------------------------

    def set_protocols(self, member: Member, protocols: dict[str, bytes]) -> None:
        self._forget_protocols(member)
        member.protocols = protocols
        self.weigh(member)
        self._supporters.update(protocols.keys())

    def all_support_one(self, protocols: Iterable[str]) -> bool:
        """Whether at least one of these protocols is one that every member has."""
        everybody = len(self.by_id)
        return any(self._supporters[name] == everybody for name in protocols)

    def vote(self) -> str:
        """The protocol that most members prefer among those that all have; on a tie, the one named first."""
        everybody = len(self.by_id)
        candidates = {name for name, count in self._supporters.items() if count == everybody}
        votes = Counter(member.vote(candidates) for member in self.by_id.values())
        return votes.most_common(1)[0][0]

    def subscribed_topics(self, protocol: str | None) -> frozenset[str] | None:
        """The topics to which consumers are subscribed; None if their metadata cannot be read."""
        subscription = message_codec(ConsumerProtocolSubscription, 0)  # every later version begins like the first
        topics: set[str] = set()
        try:
            for member in self.by_id.values():
                topics.update(subscription.decode(member.protocols.get(protocol or "", b""), 2)[0].topics)
        except ProtocolError:
            return None
        return frozenset(topics)

    def _forget_protocols(self, member: Member) -> None:
        for name in member.protocols:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]
