"""A classic consumer group: who is a member, which generation it is in, who got what.

Theory of operation. The group agrees on an assignment in two barriers, and every agreement has a number, the
generation. First barrier, *join*: in PreparingRebalance every member must send JoinGroup, and none is answered until
all have, or the rebalance timeout has passed and those who have not are dropped. Then the generation is counted up, the
protocol that most members prefer among those that all have is chosen, and all joins are answered at once: the group is
in CompletingRebalance. One member, the leader, is told all members and their metadata. Second barrier, *sync*: every
member sends SyncGroup, the leader's carries the assignment. When that is durable, all are answered: Stable. Whatever
changes the membership (somebody new, somebody gone, other metadata, the leader joining again) starts over from
PreparingRebalance; members learn it from REBALANCE_IN_PROGRESS, mostly in the answer to a heartbeat.

    Empty                no members. Offsets may be kept. Also a "simple" group, which only ever commits.
    PreparingRebalance   first barrier. From Empty it is the initial one, which waits group.initial.rebalance.delay.ms
                         (and again while newcomers arrive, up to the rebalance timeout) so that a fleet that starts
                         up needs one generation, not one per member.
    CompletingRebalance  second barrier. Members that have not sent SyncGroup when the rebalance timeout has passed
                         since its start are dropped.
    Stable               everybody has an assignment.
    Dead                 deleted, or this broker no longer coordinates it.

A member stays as long as it is heard of within its session timeout; a request that waits for an answer keeps it too,
except that the first join of a new member is given up after five minutes, as nobody can tell whether its client still
listens. A dynamic member without id is first told one (MEMBER_ID_REQUIRED, KIP-394) and counts as *pending* until it
joins with it. A static member (KIP-345) that comes without an id takes over the place that its group.instance.id has,
under a new id; whoever uses the old one is fenced. In a Stable group that costs no rebalance if the choice of protocol
stays the same, but the new id is answered only when it is durable.

Which partitions go to whom is the leader's matter, as is whether members give up partitions before they are moved
(cooperative rebalancing): metadata and assignments pass through as bytes.

Rules kept here: every reply is called exactly once; a member waits for at most one join and one sync, and if it asks
again the earlier request is answered with REBALANCE_IN_PROGRESS; a member that goes takes no unanswered request along.

Source: KIP-62, KIP-134, KIP-345, KIP-394, KIP-814, and Kafka's description of the group membership protocol.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from barnabas.groupcoord.config import GroupConfig
from barnabas.groupcoord.deadlines import Deadline, Deadlines
from barnabas.groupcoord.member import JoinReply, Member, SyncReply, WaitingJoin
from barnabas.groupcoord.outbox import Outbox
from barnabas.groupcoord.room import GROUP_BYTES, MEMBER_BYTES, PENDING_BYTES, Room, weight
from barnabas.groupcoord.store import told
from barnabas.wire.codegen import codec
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from barnabas.wire.messages.leave_group import MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.wire.records.consumer_protocol import ConsumerProtocolSubscription
from barnabas.wire.records.group_metadata import GroupMetadataValue, MemberMetadata
from barnabas.wire.schema import ProtocolError

log = logging.getLogger(__name__)

CONSUMER = "consumer"  # the protocol type of consumers; others (Connect's workers) use groups too
_KNOWN_ID_SINCE = 4  # JoinGroup version from which a new member must come back with the id it is given
_SKIP_ASSIGNMENT_SINCE = 9
_NO_FASTER_RETRY = 1.0  # seconds between attempts to start a generation while no member has joined


class State(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


NEXT: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset(),
}


class Persist(Protocol):
    """Writes a group's record; `done` is called once, when it is durable or has failed."""

    def __call__(self, group_id: str, value: GroupMetadataValue, done: Callable[[ErrorCode], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All that a group touches outside itself."""

    config: GroupConfig
    deadlines: Deadlines
    outbox: Outbox
    persist: Persist
    room: Room
    wall_ms: Callable[[], int]
    new_suffix: Callable[[], str]  # a fresh unique part of a member id


class ClassicGroup:
    """One group. Methods that a client's request ends in raise KafkaError to refuse it, or take its reply."""

    def __init__(self, group_id: str, around: Surroundings) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.state_timestamp_ms: int | None = around.wall_ms()
        self.subscribed: frozenset[str] | None = None  # topics of a consumer group's members, if they can be read
        self._was_restored = False
        self._around = around
        self._static: dict[str, str] = {}  # group.instance.id -> member id
        self._pending: dict[str, Deadline] = {}  # member ids given out, until when they may be used
        self._joined = 0  # how many members have a join waiting
        self._supporters: Counter[str] = Counter()  # protocol -> how many members have it
        self._initial = False  # PreparingRebalance was entered from Empty
        self._newcomer = False  # somebody was added during the initial delay that now runs
        self._remaining_delay = 0.0
        self._not_synced: set[str] = set()
        self._weight = GROUP_BYTES + len(group_id)
        around.room.take(self._weight)
        self._assignment_written = 0  # the generation whose assignment was sent to the store
        self._join_deadline = around.deadlines.new(self._on_join_deadline)
        self._sync_deadline = around.deadlines.new(self._on_sync_deadline)

    # --- what others may ask ------------------------------------------------------------------------------------------

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER

    @property
    def is_idle(self) -> bool:
        """No member, and no id given out that may still be used."""
        return self.state is State.EMPTY and not self._pending

    @property
    def may_be_in_log(self) -> bool:
        """Whether there may be a record of the group itself, apart from its offsets."""
        return self._was_restored or self.generation > 0

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member consumes the topic; assumed if the subscriptions of a consumer group cannot be read."""
        return self.is_consumer_group if self.subscribed is None else topic in self.subscribed

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member that a request says it is from. Raises KafkaError if there is none or it is fenced."""
        if instance_id is not None:
            current = self._static.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no static member {instance_id}")
            if current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} is {current} now, not {member_id}")
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {member_id}")
        return member

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"generation {generation}, the group has {self.generation}")

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Whether offsets may be committed by this sender; if so its session is renewed."""
        if generation < 0 and self.state is State.EMPTY:
            return  # an admin client, or a consumer that assigns itself its partitions
        if generation < 0 and not member_id and instance_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members; the commit comes from none")
        member = self.check_member(member_id, instance_id)
        self.check_generation(generation)
        if self.state is State.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "the assignment of this generation is not known yet")
        self._renew(member)

    def record(self, assignments: Mapping[str, bytes] | None = None) -> GroupMetadataValue:
        """The group as its record says it, with its own assignments or those about to be given out."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=-1 if self.state_timestamp_ms is None else self.state_timestamp_ms,
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
                for member in self.members.values()
            ],
        )

    # --- requests -----------------------------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, *, version: int, client_id: str, client_host: str, reply: JoinReply
    ) -> None:
        """JoinGroup. Raises KafkaError to refuse; otherwise the reply is called, at once or at the barrier."""
        member_id = request.member_id
        if not self._has_room_for(member_id):
            self._drop_member(member_id)
            self._complete_join_if_all_joined()
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"{len(self.members)} members")
        protocols = {protocol.name: protocol.metadata for protocol in request.protocols}
        if not self._supports(request.protocol_type, protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no protocol in common with the group")
        known = self.members.get(member_id)
        metadata = sum(len(name) + len(data) for name, data in protocols.items())
        self._around.room.check(MEMBER_BYTES + metadata - (known.weight if known is not None else 0))
        instance_id = request.group_instance_id
        waiting = WaitingJoin(version, reply)
        if not member_id:
            new_id = f"{client_id if instance_id is None else instance_id}-{self._around.new_suffix()}"
            if instance_id is not None and instance_id in self._static:
                self._take_over_static(request, protocols, self._static[instance_id], new_id, waiting)
            elif instance_id is None and version >= _KNOWN_ID_SINCE:
                self._hand_out_id(new_id, request.session_timeout_ms, reply)
            else:
                self._add(request, protocols, new_id, client_id, client_host, waiting)
        elif instance_id is None and member_id in self._pending:
            self._add(request, protocols, member_id, client_id, client_host, waiting)
        else:
            self._rejoin(request, protocols, self.check_member(member_id, instance_id), waiting)

    def sync(self, request: SyncGroupRequest, *, version: int, reply: SyncReply) -> None:
        """SyncGroup. Raises KafkaError to refuse; otherwise the reply is called, at once or at the barrier."""
        if self.state is State.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        member = self.check_member(request.member_id, request.group_instance_id)
        self.check_generation(request.generation_id)
        self._check_protocol(request, version)
        if self.state is State.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._around.room.check(sum(len(each.assignment) for each in request.assignments))
        self._not_synced.discard(member.member_id)
        self._renew(member)
        if self.state is State.STABLE:
            self._around.outbox.put(reply, self._sync_answer(member))
            return
        self._refuse_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)  # an earlier one that nobody waits for any more
        member.waiting_sync = reply
        if member.member_id == self.leader and self._assignment_written != self.generation:
            self._write_assignment({each.member_id: each.assignment for each in request.assignments})

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Heartbeat: renews the session, and tells the member if it has to join again."""
        member = self.check_member(request.member_id, request.group_instance_id)
        self.check_generation(request.generation_id)
        self._renew(member)
        if self.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, leaving: list[MemberIdentity]) -> list[ErrorCode]:
        """LeaveGroup: takes members out, all in one rebalance. The result of each, in order."""
        results = [self._leave_one(identity) for identity in leaving]
        if ErrorCode.NONE in results:
            self._membership_shrank("members left")
        return results

    def shut_down(self, error: ErrorCode) -> None:
        """The group is deleted or coordinated elsewhere: answer what waits, forget all members and timers."""
        for member in list(self.members.values()):
            self._refuse_join(member, error)
            self._refuse_sync(member, error)
            member.session.drop()
        for member_id in list(self._pending):
            self._forget_pending(member_id)
        self._around.room.take(-sum(member.weight for member in self.members.values()) - self._weight)
        self._weight = 0
        self.members.clear()
        self._static.clear()
        self._supporters.clear()
        self._join_deadline.drop()
        self._sync_deadline.drop()
        if self.state is not State.DEAD:
            self._enter(State.DEAD)

    def restore(self, value: GroupMetadataValue) -> None:
        """Become what the record says. Members get a full session, as nobody knows when they were last heard of."""
        self._was_restored = True
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.leader = value.leader
        self.state_timestamp_ms = None if value.current_state_timestamp < 0 else value.current_state_timestamp
        for each in value.members:
            timeout = each.session_timeout if each.rebalance_timeout < 0 else each.rebalance_timeout
            member = self._new_member(
                each.member_id, each.group_instance_id, each.client_id, each.client_host, each.session_timeout, timeout
            )
            member.protocols = {value.protocol or "": each.subscription}
            member.assignment = each.assignment
            self._enrol(member)
            self._renew(member)
        if value.members:
            self.state = State.STABLE
        self.subscribed = self._read_subscriptions()
        if len(self.members) > self._around.config.group_max_size:
            self._prepare_rebalance("the group is larger than group.max.size")

    # --- join: who comes ----------------------------------------------------------------------------------------------

    def _has_room_for(self, member_id: str) -> bool:
        limit = self._around.config.group_max_size
        member = self.members.get(member_id)
        if self.state is State.EMPTY:
            return True
        if self.state is State.PREPARING_REBALANCE:
            # Those who have joined count, not those who are still listed: the limit may have been lowered since, and
            # then the last to join must go.
            return self._joined < limit or (member is not None and member.waiting_join is not None)
        return member is not None or len(self.members) < limit

    def _supports(self, protocol_type: str, protocols: Mapping[str, bytes]) -> bool:
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(self._supporters[name] == everybody for name in protocols)

    def _hand_out_id(self, member_id: str, session_timeout_ms: int, reply: JoinReply) -> None:
        deadline = self._around.deadlines.new(lambda: self._on_pending_deadline(member_id))
        deadline.set(self._around.deadlines.clock() + session_timeout_ms / 1000)
        self._pending[member_id] = deadline
        self._around.room.take(PENDING_BYTES)
        refusal = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        self._around.outbox.put(reply, refusal)

    def _add(
        self,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        member_id: str,
        client_id: str,
        client_host: str,
        waiting: WaitingJoin,
    ) -> None:
        member = self._new_member(
            member_id,
            request.group_instance_id,
            client_id,
            client_host,
            request.session_timeout_ms,
            _rebalance_timeout(request),
        )
        member.protocols = protocols
        member.is_new = True
        if not self.members:
            self.protocol_type = request.protocol_type
        self._enrol(member)
        self._wait_join(member, waiting)
        self._forget_pending(member_id)
        if self.leader is None:
            self.leader = member_id
        if self.state is State.PREPARING_REBALANCE and self._initial:
            self._newcomer = True
        member.session.set(self._around.deadlines.clock() + self._around.config.new_member_join_timeout_ms / 1000)
        self._membership_changed(f"new member {member_id}: {request.reason or 'no reason given'}")

    def _rejoin(
        self, request: JoinGroupRequest, protocols: dict[str, bytes], member: Member, waiting: WaitingJoin
    ) -> None:
        if self.state is State.PREPARING_REBALANCE:
            changes_group = True
        elif self.state is State.STABLE and member.member_id == self.leader:
            changes_group = True  # how a leader says that the assignment is out of date, e.g. for more partitions
        else:
            changes_group = not member.same_protocols(protocols)
        if not changes_group:
            # It missed the answer, or asks for the current generation in order to sync.
            self._renew(member)
            self._refuse_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
            self._around.outbox.put(waiting.reply, self._join_answer(member))
            return
        self._update(member, request, protocols, waiting)
        reason = request.reason or "no reason given"
        self._membership_changed(f"member {member.member_id} joined again: {reason}")

    def _update(
        self, member: Member, request: JoinGroupRequest, protocols: dict[str, bytes], waiting: WaitingJoin
    ) -> None:
        self._refuse_join(member, ErrorCode.REBALANCE_IN_PROGRESS)  # an earlier one that nobody waits for any more
        self._set_protocols(member, protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = _rebalance_timeout(request)
        self._wait_join(member, waiting)

    def _take_over_static(
        self,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        old_id: str,
        new_id: str,
        waiting: WaitingJoin,
    ) -> None:
        old = self.members[old_id]
        before = (old.protocols, old.session_timeout_ms, old.rebalance_timeout_ms)
        old_leader = self.leader
        member = self._rename_static(old, new_id)
        self._update(member, request, protocols, waiting)
        self._renew(member)
        log.info("group %s: static member %s is %s now, was %s", self.group_id, member.instance_id, new_id, old_id)
        if self.state is State.COMPLETING_REBALANCE:
            # The leader may have been told the old id: what it assigns would miss the new one.
            self._prepare_rebalance(f"static member {member.instance_id} came back")
        elif self.state is State.STABLE and self._vote() == self.protocol:

            def durable(error: ErrorCode) -> None:
                if member.waiting_join is not waiting or self.state is not State.STABLE:
                    return  # a rebalance has begun or fenced it meanwhile, which answers it
                if error:
                    self._set_protocols(member, before[0])
                    member.session_timeout_ms, member.rebalance_timeout_ms = before[1:]
                    self._refuse_join(member, told(error), member_id="")
                    self._renew(self._rename_static(member, old_id))
                    return
                self._renew(member)
                self._answer_join(member, known_leader=old_leader)

            self._around.persist(self.group_id, self.record(), durable)
        elif self.state is State.STABLE:
            self._prepare_rebalance(f"static member {member.instance_id} came back with other protocols")
        else:
            self._complete_join_if_all_joined()

    def _rename_static(self, member: Member, new_id: str) -> Member:
        """The same place under a new id; requests of the old id are fenced."""
        old_id = member.member_id
        self._refuse_join(member, ErrorCode.FENCED_INSTANCE_ID)
        self._refuse_sync(member, ErrorCode.FENCED_INSTANCE_ID)
        self._unenrol(member)
        renamed = self._new_member(
            new_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
        )
        renamed.protocols = member.protocols
        renamed.assignment = member.assignment
        self._enrol(renamed)
        if self.leader == old_id:
            self.leader = new_id
        return renamed

    # --- the first barrier --------------------------------------------------------------------------------------------

    def _membership_changed(self, reason: str) -> None:
        """Somebody came or changed: start a rebalance, or see whether the one that runs can go on."""
        if self.state is State.PREPARING_REBALANCE:
            self._complete_join_if_all_joined()
        else:
            self._prepare_rebalance(reason)

    def _membership_shrank(self, reason: str) -> None:
        """Somebody went. An empty group stays as it is."""
        if self.state in (State.STABLE, State.COMPLETING_REBALANCE, State.PREPARING_REBALANCE):
            self._membership_changed(reason)

    def _prepare_rebalance(self, reason: str) -> None:
        log.info("group %s: rebalance after generation %d: %s", self.group_id, self.generation, reason)
        if self.state is State.COMPLETING_REBALANCE:
            for member in self.members.values():
                member.assignment = b""
                self._weigh(member)
                self._refuse_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self._sync_deadline.cancel()
        self._not_synced.clear()
        self._initial = self.state is State.EMPTY
        self._newcomer = False
        self._enter(State.PREPARING_REBALANCE)
        if not self._initial:
            self._await_joins()
            return
        timeout = self._rebalance_timeout()
        delay = min(self._around.config.group_initial_rebalance_delay_ms / 1000, timeout)
        self._remaining_delay = timeout - delay
        if delay > 0:
            self._join_deadline.set(self._around.deadlines.clock() + delay)
        else:
            self._complete_join()

    def _await_joins(self) -> None:
        self._join_deadline.set(self._around.deadlines.clock() + self._rebalance_timeout())
        self._complete_join_if_all_joined()

    def _complete_join_if_all_joined(self) -> None:
        if self.state is not State.PREPARING_REBALANCE or self._initial or self._pending:
            return
        if self._joined == len(self.members):
            self._complete_join()

    def _on_join_deadline(self) -> None:
        if self.state is not State.PREPARING_REBALANCE:
            return
        if self._initial and self._newcomer and self._remaining_delay > 0:
            self._newcomer = False
            delay = min(self._around.config.group_initial_rebalance_delay_ms / 1000, self._remaining_delay)
            self._remaining_delay -= delay
            self._join_deadline.set(self._around.deadlines.clock() + delay)
            return
        self._complete_join()

    def _complete_join(self) -> None:
        """End of the first barrier: drop who did not join, choose leader and protocol, answer all."""
        for member in list(self.members.values()):
            # A static member keeps its place until its session ends: that is what being static is for.
            if member.waiting_join is None and member.instance_id is None:
                log.info("group %s: %s did not join in time", self.group_id, member.member_id)
                self._drop_member(member.member_id)
        if self.members and not self._elect_leader():
            retry = max(self._rebalance_timeout(), _NO_FASTER_RETRY)
            self._join_deadline.set(self._around.deadlines.clock() + retry)
            return
        self._join_deadline.cancel()
        self.generation += 1
        if not self.members:
            self.protocol = None
            self.leader = None
            self.subscribed = self._read_subscriptions()
            self._enter(State.EMPTY)
            self._write_empty()
            return
        self.protocol = self._vote()
        self.subscribed = self._read_subscriptions()
        self._enter(State.COMPLETING_REBALANCE)
        log.info("group %s: generation %d has %d members", self.group_id, self.generation, len(self.members))
        self._not_synced = set(self.members)
        for member in self.members.values():
            member.is_new = False
            self._renew(member)
            self._answer_join(member)
        self._sync_deadline.set(self._around.deadlines.clock() + self._rebalance_timeout())

    def _elect_leader(self) -> bool:
        """The leader stays if it has joined, else the first that has. False if nobody has."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.waiting_join is not None:
            return True
        for member in self.members.values():
            if member.waiting_join is not None:
                self.leader = member.member_id
                return True
        return False

    def _vote(self) -> str:
        everybody = len(self.members)
        candidates = {name for name, count in self._supporters.items() if count == everybody}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]  # of equals the one that was named first

    def _write_empty(self) -> None:
        if self.generation == 1:
            return  # it never had a generation with members: nothing worth a record
        group_id, generation = self.group_id, self.generation

        def durable(error: ErrorCode) -> None:
            if error:
                # After a restart the members of the last generation come back and expire: nothing is lost by that.
                log.warning("group %s: generation %d (empty) not written: %s", group_id, generation, error.name)

        self._around.persist(self.group_id, self.record(), durable)

    # --- the second barrier -------------------------------------------------------------------------------------------

    def _check_protocol(self, request: SyncGroupRequest, version: int) -> None:
        given = (request.protocol_type, request.protocol_name)
        if version >= 5 and None in given:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "protocol type and name are missing")
        for mine, theirs in zip((self.protocol_type, self.protocol), given, strict=True):
            if None not in (mine, theirs) and mine != theirs:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{theirs}, the group has {mine}")

    def _write_assignment(self, assignments: dict[str, bytes]) -> None:
        generation = self._assignment_written = self.generation

        def durable(error: ErrorCode) -> None:
            if self.state is not State.COMPLETING_REBALANCE or generation != self.generation:
                return  # somebody joined or left meanwhile: all have been told to join again
            if error:
                log.warning("group %s: generation %d not written: %s", self.group_id, generation, error.name)
                for member in self.members.values():
                    self._refuse_sync(member, told(error))
                self._prepare_rebalance("the assignment could not be stored")
                return
            self._enter(State.STABLE)
            for member in self.members.values():
                member.assignment = assignments.get(member.member_id, b"")
                self._weigh(member)
                if member.waiting_sync is not None:
                    reply, member.waiting_sync = member.waiting_sync, None
                    self._around.outbox.put(reply, self._sync_answer(member))
                    self._renew(member)

        self._around.persist(self.group_id, self.record(assignments), durable)

    def _on_sync_deadline(self) -> None:
        if self.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not self._not_synced:
            return
        for member_id in list(self._not_synced):
            log.info("group %s: %s did not sync in time", self.group_id, member_id)
            self._drop_member(member_id)
        self._prepare_rebalance("members did not sync in time")

    # --- who goes -----------------------------------------------------------------------------------------------------

    def _leave_one(self, identity: MemberIdentity) -> ErrorCode:
        member_id = identity.member_id
        if not member_id:  # an administrator names a static member by its group.instance.id alone
            member_id = self._static.get(identity.group_instance_id or "", "")
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in self._pending:
            self._forget_pending(member_id)
            return ErrorCode.NONE
        else:
            try:
                self.check_member(member_id, identity.group_instance_id)
            except KafkaError as refusal:
                return refusal.code
        log.info("group %s: %s leaves: %s", self.group_id, member_id, identity.reason or "no reason given")
        self._drop_member(member_id)
        return ErrorCode.NONE

    def _on_session_deadline(self, member: Member) -> None:
        if self.members.get(member.member_id) is not member:
            return
        if not member.is_new and (member.waiting_join is not None or member.waiting_sync is not None):
            return  # it waits for us, not we for it; its session is renewed with the answer
        log.info("group %s: session of %s timed out", self.group_id, member.member_id)
        self._drop_member(member.member_id)
        self._membership_shrank("a session timed out")

    def _on_pending_deadline(self, member_id: str) -> None:
        self._forget_pending(member_id)
        self._complete_join_if_all_joined()

    def _drop_member(self, member_id: str) -> None:
        """Take a member out. What it waits for is answered: if it still lives it must join as a new one."""
        self._forget_pending(member_id)
        member = self.members.get(member_id)
        if member is None:
            return
        self._refuse_join(member, ErrorCode.UNKNOWN_MEMBER_ID, member_id="")
        self._refuse_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._unenrol(member)
        self._not_synced.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answer_join(self, member: Member, *, known_leader: str | None = None) -> None:
        """`known_leader`: the leader as of before this member took over its id, which makes it skip the assignment."""
        waiting = self._take_waiting_join(member)
        if waiting is None:
            return
        if known_leader is None:
            answer = self._join_answer(member)
        elif waiting.version >= _SKIP_ASSIGNMENT_SINCE:
            answer = self._join_answer(member, skip_assignment=member.member_id == self.leader)
        else:
            # It cannot be told to skip: with the old leader's id it takes itself for a follower and only syncs.
            answer = self._join_answer(member, leader=known_leader)
        self._around.outbox.put(waiting.reply, answer)

    def _join_answer(
        self, member: Member, *, leader: str | None = None, skip_assignment: bool = False
    ) -> JoinGroupResponse:
        leader = leader or self.leader or ""
        listed: list[JoinGroupResponseMember] = []
        if member.member_id == leader:
            listed = [
                JoinGroupResponseMember(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    metadata=each.protocols.get(self.protocol or "", b""),
                )
                for each in self.members.values()
            ]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=leader,
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=listed,
        )

    def _sync_answer(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=member.assignment
        )

    def _refuse_join(self, member: Member, error: ErrorCode, *, member_id: str | None = None) -> None:
        waiting = self._take_waiting_join(member)
        if waiting is not None:
            told_id = member.member_id if member_id is None else member_id
            self._around.outbox.put(waiting.reply, JoinGroupResponse(error_code=error, member_id=told_id))

    def _refuse_sync(self, member: Member, error: ErrorCode) -> None:
        reply, member.waiting_sync = member.waiting_sync, None
        if reply is not None:
            self._renew(member)  # while it waited its session may have run out without effect
            self._around.outbox.put(reply, SyncGroupResponse(error_code=error))

    # --- the books ----------------------------------------------------------------------------------------------------

    def _enter(self, state: State) -> None:
        if state not in NEXT[self.state]:
            raise AssertionError(f"group {self.group_id}: {self.state} to {state}")
        self.state = state
        self.state_timestamp_ms = self._around.wall_ms()

    def _new_member(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> Member:
        member: Member
        session = self._around.deadlines.new(lambda: self._on_session_deadline(member))
        member = Member(
            member_id, instance_id, client_id, client_host, session_timeout_ms, rebalance_timeout_ms, {}, session
        )
        return member

    def _forget_pending(self, member_id: str) -> None:
        deadline = self._pending.pop(member_id, None)
        if deadline is not None:
            deadline.drop()
            self._around.room.take(-PENDING_BYTES)

    def _wait_join(self, member: Member, waiting: WaitingJoin) -> None:
        member.waiting_join = waiting
        self._joined += 1

    def _take_waiting_join(self, member: Member) -> WaitingJoin | None:
        waiting, member.waiting_join = member.waiting_join, None
        if waiting is not None:
            self._joined -= 1
        return waiting

    def _enrol(self, member: Member) -> None:
        self.members[member.member_id] = member
        self._weigh(member)
        self._supporters.update(member.protocols.keys())
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id

    def _weigh(self, member: Member) -> None:
        """Count what a member takes now."""
        before, member.weight = member.weight, weight(member)
        self._around.room.take(member.weight - before)

    def _unenrol(self, member: Member) -> None:
        del self.members[member.member_id]
        self._around.room.take(-member.weight)
        member.weight = 0
        self._forget_protocols(member)
        member.session.drop()
        if member.instance_id is not None:
            del self._static[member.instance_id]

    def _set_protocols(self, member: Member, protocols: dict[str, bytes]) -> None:
        self._forget_protocols(member)
        member.protocols = protocols
        self._weigh(member)
        self._supporters.update(protocols.keys())

    def _forget_protocols(self, member: Member) -> None:
        for name in member.protocols:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]

    def _renew(self, member: Member) -> None:
        member.session.set(self._around.deadlines.clock() + member.session_timeout_ms / 1000)

    def _rebalance_timeout(self) -> float:
        """In seconds: the longest that a member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0) / 1000

    def _read_subscriptions(self) -> frozenset[str] | None:
        if not self.is_consumer_group:
            return None
        subscription = codec(ConsumerProtocolSubscription, 0)  # every later version begins like the first
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(subscription.decode(member.protocols.get(self.protocol or "", b""), 2)[0].topics)
        except ProtocolError:
            return None
        return frozenset(topics)


def _rebalance_timeout(request: JoinGroupRequest) -> int:
    """Version 0 has one timeout for both."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
