"""The second barrier of a classic group: every member syncs, and the leader's sync brings the assignment.

All are answered when the assignment is durable. Members that have not synced by the rebalance timeout are dropped, even
after that: only a member that asked is known to have its assignment.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.groupcoord.classic.answers import answer_sync, refuse_sync
from barnabas.groupcoord.classic.member import Member, SyncReply
from barnabas.groupcoord.classic.state import State
from barnabas.groupcoord.log.store import told
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from barnabas.groupcoord.classic.group import ClassicGroup

log = logging.getLogger(__name__)

_PROTOCOL_NAMED_SINCE = 5  # from this SyncGroup version on, a member must name the protocol type and protocol


class SyncBarrier:
    """Waits for the syncs of one generation."""

    def __init__(self, group: ClassicGroup) -> None:
        self._group = group
        self._not_synced: set[str] = set()
        self._assignment_written = 0  # the generation whose assignment was passed to the store
        self._deadline = group.around.deadlines.new(self._on_deadline)

    def begin(self) -> None:
        """A generation has begun: all members must sync."""
        members = self._group.members
        self._not_synced = set(members.by_id)
        self._deadline.set(self._group.around.deadlines.clock() + members.rebalance_timeout())

    def abandon(self) -> None:
        """The next rebalance has begun."""
        self._deadline.cancel()
        self._not_synced.clear()

    def drop(self) -> None:
        """The group no longer exists."""
        self._deadline.drop()

    def forget(self, member_id: str) -> None:
        """A member is gone."""
        self._not_synced.discard(member_id)

    def synced(self, member: Member) -> None:
        self._not_synced.discard(member.member_id)

    def wait(self, member: Member, request: SyncGroupRequest, reply: SyncReply) -> None:
        """Take a sync, which is answered when the assignment is durable. The leader's sync brings it."""
        group = self._group
        refuse_sync(group, member, ErrorCode.REBALANCE_IN_PROGRESS)  # an earlier request whose sender no longer waits
        member.waiting_sync = reply
        if member.member_id == group.leader and self._assignment_written != group.generation:
            self._write_assignment({each.member_id: each.assignment for each in request.assignments})

    def check_protocol(self, request: SyncGroupRequest, version: int) -> None:
        """Raises KafkaError if the member names a protocol other than the group's."""
        given = (request.protocol_type, request.protocol_name)
        if version >= _PROTOCOL_NAMED_SINCE and None in given:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "protocol type and name are missing")
        for mine, theirs in zip((self._group.protocol_type, self._group.protocol), given, strict=True):
            if None not in (mine, theirs) and mine != theirs:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{theirs}, the group has {mine}")

    def _write_assignment(self, assignments: dict[str, bytes]) -> None:
        group = self._group
        generation = self._assignment_written = group.generation

        def durable(error: ErrorCode) -> None:
            if group.state is not State.COMPLETING_REBALANCE or generation != group.generation:
                return  # a member joined or left meanwhile, so all were told to rejoin
            if error:
                self._not_stored(error)
            else:
                self._hand_out(assignments)

        group.around.persist(group.group_id, group.records(assignments), durable)

    def _not_stored(self, error: ErrorCode) -> None:
        group = self._group
        log.warning("group %s: generation %d not written: %s", group.group_id, group.generation, error.name)
        for member in group.members.by_id.values():
            refuse_sync(group, member, told(error))
        group.join_barrier.prepare_rebalance("the assignment could not be stored")

    def _hand_out(self, assignments: dict[str, bytes]) -> None:
        group = self._group
        group.enter(State.STABLE)
        for member in group.members.by_id.values():
            member.assignment = assignments.get(member.member_id, b"")
            group.members.weigh(member)
            answer_sync(group, member)

    def _on_deadline(self) -> None:
        group = self._group
        if group.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not self._not_synced:
            return
        for member_id in list(self._not_synced):
            log.info("group %s: %s did not sync in time", group.group_id, member_id)
            group.drop_member(member_id)
        group.join_barrier.prepare_rebalance("members did not sync in time")
