"""The first barrier of a classic group: all members join, or are dropped, before any is answered.

From Empty it is the initial barrier, which waits for a starting fleet: for group.initial.rebalance.delay.ms, and again
as long as new members arrive, up to the rebalance timeout. Otherwise it ends when all members have joined and no id is
still unused, at the latest after the rebalance timeout.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.groupcoord.classic.answers import answer_join, refuse_sync
from barnabas.groupcoord.classic.state import State
from barnabas.wire.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.groupcoord.classic.group import ClassicGroup

log = logging.getLogger(__name__)

_NO_FASTER_RETRY = 1.0  # seconds between attempts to start a generation while no member has joined


class JoinBarrier:
    """Begins a rebalance, and ends it with the next generation."""

    def __init__(self, group: ClassicGroup) -> None:
        self._group = group
        self._initial = False  # PreparingRebalance was entered from Empty
        self._newcomer = False  # somebody was added during the current initial delay
        self._remaining_delay = 0.0
        self._deadline = group.around.deadlines.new(self._on_deadline)

    def membership_changed(self, reason: str) -> None:
        """A member was added or changed: start a rebalance, or check whether the current one can proceed."""
        if self._group.state is State.PREPARING_REBALANCE:
            self.complete_if_all_joined()
        else:
            self.prepare_rebalance(reason)

    def membership_shrank(self, reason: str) -> None:
        """A member is gone. An empty group stays as it is."""
        if self._group.state in (State.STABLE, State.COMPLETING_REBALANCE, State.PREPARING_REBALANCE):
            self.membership_changed(reason)

    def note_newcomer(self) -> None:
        """A member was added: if the initial delay is running, it runs once more."""
        if self._group.state is State.PREPARING_REBALANCE and self._initial:
            self._newcomer = True

    def prepare_rebalance(self, reason: str) -> None:
        """Enter the barrier."""
        group = self._group
        log.info("group %s: rebalance after generation %d: %s", group.group_id, group.generation, reason)
        if group.state is State.COMPLETING_REBALANCE:
            for member in group.members.by_id.values():
                member.assignment = b""
                group.members.weigh(member)
                refuse_sync(group, member, ErrorCode.REBALANCE_IN_PROGRESS)
        group.sync_barrier.abandon()
        self._initial = group.state is State.EMPTY
        self._newcomer = False
        group.enter(State.PREPARING_REBALANCE)
        if self._initial:
            self._await_fleet()
        else:
            self._deadline.set(group.around.deadlines.clock() + group.members.rebalance_timeout())
            self.complete_if_all_joined()

    def complete_if_all_joined(self) -> None:
        group, members = self._group, self._group.members
        if group.state is not State.PREPARING_REBALANCE or self._initial or members.pending:
            return
        if members.joined == len(members.by_id):
            self._complete()

    def drop(self) -> None:
        """The group no longer exists."""
        self._deadline.drop()

    def _await_fleet(self) -> None:
        around = self._group.around
        timeout = self._group.members.rebalance_timeout()
        delay = min(around.config.group_initial_rebalance_delay_ms / 1000, timeout)
        self._remaining_delay = timeout - delay
        if delay > 0:
            self._deadline.set(around.deadlines.clock() + delay)
        else:
            self._complete()

    def _on_deadline(self) -> None:
        if self._group.state is not State.PREPARING_REBALANCE:
            return
        if self._initial and self._newcomer and self._remaining_delay > 0:
            around = self._group.around
            self._newcomer = False
            delay = min(around.config.group_initial_rebalance_delay_ms / 1000, self._remaining_delay)
            self._remaining_delay -= delay
            self._deadline.set(around.deadlines.clock() + delay)
            return
        self._complete()

    def _complete(self) -> None:
        """Drop the members that did not join, choose the leader and the protocol, and answer all."""
        group, members = self._group, self._group.members
        self._drop_who_did_not_join()
        if members.by_id and not self._elect_leader():
            retry = max(members.rebalance_timeout(), _NO_FASTER_RETRY)
            self._deadline.set(group.around.deadlines.clock() + retry)
            return
        self._deadline.cancel()
        group.generation += 1
        if not members.by_id:
            self._become_empty()
            return
        group.protocol = members.vote()
        group.read_subscriptions()
        group.enter(State.COMPLETING_REBALANCE)
        log.info("group %s: generation %d has %d members", group.group_id, group.generation, len(members.by_id))
        for member in members.by_id.values():
            member.is_new = False
            members.renew(member)
            answer_join(group, member)
        group.sync_barrier.begin()

    def _drop_who_did_not_join(self) -> None:
        for member in list(self._group.members.by_id.values()):
            # A static member keeps its place until its session ends: that is the purpose of static membership.
            if member.waiting_join is None and member.instance_id is None:
                log.info("group %s: %s did not join in time", self._group.group_id, member.member_id)
                self._group.drop_member(member.member_id)

    def _elect_leader(self) -> bool:
        """The leader stays if it has joined; otherwise the first member that has. False if none has."""
        group, members = self._group, self._group.members.by_id
        leader = members.get(group.leader or "")
        if leader is not None and leader.waiting_join is not None:
            return True
        for member in members.values():
            if member.waiting_join is not None:
                group.leader = member.member_id
                return True
        return False

    def _become_empty(self) -> None:
        group = self._group
        group.protocol = None
        group.leader = None
        group.read_subscriptions()
        group.enter(State.EMPTY)
        generation = group.generation
        if generation == 1:
            return  # it never had a generation with members, so a record is pointless

        def durable(error: ErrorCode) -> None:
            if error:
                # After a restart, the members of the last generation would return and expire: nothing is lost by that.
                log.warning("group %s: generation %d (empty) not written: %s", group.group_id, generation, error.name)

        group.around.persist(group.group_id, group.records(), durable)
