"""A classic consumer group: its members, its generation, and what each member was assigned.

Theory of operation. The group agrees on an assignment in two barriers, and every agreement has a number, the
generation. First barrier, *join*: in PreparingRebalance every member must send JoinGroup. None is answered until all
have sent it, or until the rebalance timeout has passed and the others are dropped. Then the generation is incremented,
and the protocol is chosen that most members prefer among those that all members have. All joins are answered at once,
and the group is in CompletingRebalance. One member, the leader, receives all members and their metadata. Second
barrier, *sync*: every member sends SyncGroup, and the leader's carries the assignment. When it is durable, all are
answered: Stable. Any change of the membership (a new member, a lost one, other metadata, the leader joining again)
starts over from PreparingRebalance. The members learn of it by REBALANCE_IN_PROGRESS, mostly in the answer to a
heartbeat.

    Empty                no members. Offsets may be kept. Also a "simple" group, which only ever commits.
    PreparingRebalance   first barrier. From Empty it is the initial one, which waits group.initial.rebalance.delay.ms
                         (and again while newcomers arrive, up to the rebalance timeout) so that a fleet that starts
                         up needs one generation, not one per member.
    CompletingRebalance  second barrier. Members that have not sent SyncGroup when the rebalance timeout has passed
                         since its start are dropped.
    Stable               everybody has an assignment.
    Dead                 deleted, or this broker no longer coordinates it.

A member stays as long as it is heard from within its session timeout; a request that waits for an answer keeps it too.
The exception is the first join of a new member, which is given up after five minutes, because nobody can know whether
its client is still listening. A dynamic member without an id first receives one (MEMBER_ID_REQUIRED, KIP-394), and
counts as *pending* until it joins with it. A static member (KIP-345) that comes without an id takes over the place of
its group.instance.id, under a new id; a client that uses the old id is fenced. In a Stable group that causes no
rebalance if the choice of protocol stays the same, but the new id is answered only when it is durable.

The leader assigns the partitions, and decides whether members give up partitions before these are moved
(cooperative rebalancing). Metadata and assignments pass through as bytes.

Rules kept here: every reply is called exactly once. A member waits for at most one join and one sync; if it asks again,
the earlier request is answered with REBALANCE_IN_PROGRESS. No member leaves with a request unanswered.

The barriers are `join_barrier` and `sync_barrier`; joins are in `joining`, the members' data in `members`. This module
has the rest: what the group is and what its record says, how members leave, and what the coordinator asks.

Source: KIP-62, KIP-134, KIP-345, KIP-394, KIP-814, and Kafka's description of the group membership protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from barnabas.groupcoord.classic.answers import refuse_join, refuse_sync, sync_answer
from barnabas.groupcoord.classic.join_barrier import JoinBarrier
from barnabas.groupcoord.classic.joining import Joining, join
from barnabas.groupcoord.classic.member import JoinReply, Member, SyncReply, WaitingJoin
from barnabas.groupcoord.classic.members import Members
from barnabas.groupcoord.classic.state import NEXT, State
from barnabas.groupcoord.classic.sync_barrier import SyncBarrier
from barnabas.groupcoord.group import OffsetExpiration, Surroundings
from barnabas.groupcoord.log.records import CoordinatorRecord, group_record
from barnabas.groupcoord.memory_budget import GROUP_BYTES, Newcomer
from barnabas.groupcoord.shares import client_at
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest
from barnabas.wire.messages.leave_group import MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupRequest
from barnabas.wire.records.group_metadata import GroupMetadataValue, MemberMetadata

log = logging.getLogger(__name__)

CLASSIC = "classic"
CONSUMER = "consumer"  # the protocol type of consumers; others (Connect's workers) use groups too


class ClassicGroup:
    """One group of the classic protocol; a `Group`."""

    group_type = CLASSIC

    def __init__(self, group_id: str, around: Surroundings, client: str = "") -> None:
        """`client` is the client whose join created the group; the group counts against its share of the memory.

        A group that was created by offsets alone is not counted: like the offsets, it is limited only by the disk.
        """
        self.group_id = group_id
        self._client = client
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.around = around
        self.members = Members(around)
        self.join_barrier = JoinBarrier(self)
        self.sync_barrier = SyncBarrier(self)
        self._state_timestamp_ms: int | None = around.wall_ms()
        self._subscribed: frozenset[str] | None = None  # topics of a consumer group's members, if readable
        self._was_restored = False
        self._weight = GROUP_BYTES + len(group_id) if client else 0
        around.memory.take(client, self._weight)

    # --- what the coordinator asks ------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER

    @property
    def member_count(self) -> int:
        return len(self.members.by_id)

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_idle(self) -> bool:
        """Whether there is no member, and no id was given out that may still be used."""
        return self.state is State.EMPTY and not self.members.pending

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member consumes the topic; assumed if the subscriptions of a consumer group cannot be read."""
        return self.is_consumer_group if self._subscribed is None else topic in self._subscribed

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool = False
    ) -> None:
        """Check that this sender may commit offsets, and renew its session. Raises KafkaError."""
        if generation < 0 and self.state is State.EMPTY:
            return  # an admin client, or a consumer that assigns itself its partitions
        if generation < 0 and not member_id and instance_id is None:
            if in_transaction:
                return  # a producer that does not know its consumer's member id, as before KIP-447
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members; the commit comes from none")
        member = self.members.check(member_id, instance_id)
        self._check_generation(generation)
        if self.state is State.COMPLETING_REBALANCE and not in_transaction:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "the assignment of this generation is not known yet")
        self.members.renew(member)

    def check_offset_delete(self) -> None:
        if self.state is not State.EMPTY and not self.is_consumer_group:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "what its members use cannot be known")

    def offset_expiration(self) -> OffsetExpiration | None:
        """In a group that has had members, offsets age from the time when it became empty.

        While it has members, only offsets of topics that it does not consume can expire, if its subscriptions are
        known.
        """
        if self.protocol_type is None:
            return OffsetExpiration(None)
        if self.state is State.EMPTY:
            return OffsetExpiration(self._state_timestamp_ms)
        if self.state is State.STABLE and self.is_consumer_group and self._subscribed is not None:
            return OffsetExpiration(None)
        return None

    def describe(self) -> DescribedGroup:
        is_stable = self.state is State.STABLE
        protocol = self.protocol if is_stable and self.protocol else ""
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=protocol,
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.protocols.get(protocol, b"") if is_stable else b"",
                    member_assignment=member.assignment if is_stable else b"",
                )
                for member in self.members.by_id.values()
            ],
        )

    # --- requests of members ------------------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, *, version: int, client_id: str, client_host: str, reply: JoinReply
    ) -> None:
        """JoinGroup. Raises KafkaError to refuse; otherwise the reply is called, at once or at the barrier's end."""
        protocols = {protocol.name: protocol.metadata for protocol in request.protocols}
        join(self, Joining(request, protocols, client_id, client_host, WaitingJoin(version, reply)))

    def sync(self, request: SyncGroupRequest, *, version: int, reply: SyncReply) -> None:
        """SyncGroup. Raises KafkaError to refuse; otherwise the reply is called, at once or at the barrier's end."""
        if self.state is State.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = self.members.check(request.member_id, request.group_instance_id)
        self._check_generation(request.generation_id)
        self.sync_barrier.check_protocol(request, version)
        if self.state is State.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self.around.memory.check(member.client, sum(len(each.assignment) for each in request.assignments))
        self.around.memory.settle(member.client, member)
        self.sync_barrier.synced(member)
        self.members.renew(member)
        if self.state is State.STABLE:
            self.around.outbox.put(reply, sync_answer(self, member))
        else:
            self.sync_barrier.wait(member, request, reply)

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Heartbeat: renew the session, and tell the member whether it must rejoin."""
        member = self.members.check(request.member_id, request.group_instance_id)
        self._check_generation(request.generation_id)
        self.members.renew(member)
        if self.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, leaving: list[MemberIdentity]) -> list[ErrorCode]:
        """LeaveGroup: remove members, all in one rebalance. Returns the result of each, in order."""
        results = [self._leave_one(identity) for identity in leaving]
        if ErrorCode.NONE in results:
            self.join_barrier.membership_shrank("members left")
        return results

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"generation {generation}, the group has {self.generation}")

    # --- members that leave -------------------------------------------------------------------------------------------

    def drop_member(self, member_id: str) -> None:
        """Remove a member. Its waiting requests are answered: if it still lives, it must join as a new member."""
        self.members.forget_pending(member_id)
        member = self.members.by_id.get(member_id)
        if member is None:
            return
        refuse_join(self, member, ErrorCode.UNKNOWN_MEMBER_ID, member_id="")
        refuse_sync(self, member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.members.unenrol(member)
        self.sync_barrier.forget(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members.by_id), None)

    def expect(self, member: Member) -> None:
        """Register a new member, which may be dropped to free memory until it has had an assignment."""

        def heard() -> float | None:
            if member.waiting_join is not None or member.waiting_sync is not None:
                return None
            return member.session.at - member.session_timeout_ms / 1000

        def drop() -> None:
            log.info("group %s: %s has never synced, and makes room", self.group_id, member.member_id)
            self.drop_member(member.member_id)
            self.join_barrier.membership_shrank("a member made room")

        self.around.memory.expect(member.client, member, Newcomer(heard, drop))

    def _leave_one(self, identity: MemberIdentity) -> ErrorCode:
        member_id = identity.member_id
        if not member_id:  # an administrator names a static member by its group.instance.id alone
            member_id = self.members.static.get(identity.group_instance_id or "", "")
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in self.members.pending:
            self.members.forget_pending(member_id)
            return ErrorCode.NONE
        else:
            try:
                self.members.check(member_id, identity.group_instance_id)
            except KafkaError as refusal:
                return refusal.code
        log.info("group %s: %s leaves: %s", self.group_id, member_id, identity.reason or "no reason given")
        self.drop_member(member_id)
        return ErrorCode.NONE

    def _on_session_deadline(self, member: Member) -> None:
        if self.members.by_id.get(member.member_id) is not member:
            return
        if not member.is_new and (member.waiting_join is not None or member.waiting_sync is not None):
            return  # it waits for us, not we for it; the answer renews its session
        log.info("group %s: session of %s timed out", self.group_id, member.member_id)
        self.drop_member(member.member_id)
        self.join_barrier.membership_shrank("a session timed out")

    def shut_down(self, error: ErrorCode) -> None:
        for member in self.members.by_id.values():
            refuse_join(self, member, error)
            refuse_sync(self, member, error)
        self.members.clear()
        self.around.memory.take(self._client, -self._weight)
        self._weight = 0
        self.join_barrier.drop()
        self.sync_barrier.drop()
        if self.state is not State.DEAD:
            self.enter(State.DEAD)

    # --- changes by the barriers --------------------------------------------------------------------------------------

    def enter(self, state: State) -> None:
        if state not in NEXT[self.state]:
            raise AssertionError(f"group {self.group_id}: {self.state} to {state}")
        self.state = state
        self._state_timestamp_ms = self.around.wall_ms()

    def read_subscriptions(self) -> None:
        """Call this when the protocol or the members have changed."""
        self._subscribed = self.members.subscribed_topics(self.protocol) if self.is_consumer_group else None

    def new_member(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> Member:
        """Create a member that is not enrolled yet."""
        member: Member
        session = self.around.deadlines.new(lambda: self._on_session_deadline(member))
        member = Member(
            member_id, instance_id, client_id, client_host, session_timeout_ms, rebalance_timeout_ms, {}, session
        )
        member.client = client_at(client_host)
        return member

    # --- records ------------------------------------------------------------------------------------------------------

    def records(self, assignments: Mapping[str, bytes] | None = None) -> list[CoordinatorRecord]:
        """The group's records, with its current assignments or those about to be given out."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=-1 if self._state_timestamp_ms is None else self._state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.protocols.get(self.protocol or "", b""),
                    assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
                )
                for member in self.members.by_id.values()
            ],
        )
        return [group_record(self.group_id, value)]

    def tombstones(self) -> list[CoordinatorRecord]:
        may_be_in_log = self._was_restored or self.generation > 0
        return [group_record(self.group_id, None)] if may_be_in_log else []

    def restore(self, value: GroupMetadataValue) -> None:
        """Restore the group from its record. Members get a full session: when they were last heard from is unknown."""
        self._was_restored = True
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.leader = value.leader
        self._state_timestamp_ms = None if value.current_state_timestamp < 0 else value.current_state_timestamp
        for each in value.members:
            timeout = each.session_timeout if each.rebalance_timeout < 0 else each.rebalance_timeout
            member = self.new_member(
                each.member_id, each.group_instance_id, each.client_id, each.client_host, each.session_timeout, timeout
            )
            member.protocols = {value.protocol or "": each.subscription}
            member.assignment = each.assignment
            self.members.enrol(member)
            self.members.renew(member)
        if value.members:
            self.state = State.STABLE
        self.read_subscriptions()
        if len(self.members.by_id) > self.around.config.group_max_size:
            self.join_barrier.prepare_rebalance("the group is larger than group.max.size")
