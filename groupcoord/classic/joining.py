"""Joins of a classic group: new members, rejoining members, and static members that take over their place.

A dynamic member without an id first receives one (MEMBER_ID_REQUIRED, KIP-394), and is *pending* until it joins with
it. A static member (KIP-345) that comes without an id takes over the place of its group.instance.id, under a new id. In
a Stable group that causes no rebalance if the choice of protocol stays the same. The new id is answered only when it is
durable; if it cannot be stored, the old one is valid again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.groupcoord.classic.answers import answer_join, join_answer, refuse_join, refuse_sync
from barnabas.groupcoord.classic.member import Member, WaitingJoin
from barnabas.groupcoord.classic.state import State
from barnabas.groupcoord.log.store import told
from barnabas.groupcoord.memory_budget import MEMBER_BYTES
from barnabas.groupcoord.shares import client_at
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from barnabas.groupcoord.classic.group import ClassicGroup

log = logging.getLogger(__name__)

_KNOWN_ID_SINCE = 4  # from this JoinGroup version on, a new member must rejoin with the id it is given


class Joining(NamedTuple):
    """A JoinGroup, and what is known about its sender."""

    request: JoinGroupRequest
    protocols: dict[str, bytes]
    client_id: str
    client_host: str
    waiting: WaitingJoin

    @property
    def client(self) -> str:
        """The client whose share of the memory is used."""
        return client_at(self.client_host)

    @property
    def reason(self) -> str:
        return self.request.reason or "no reason given"

    @property
    def rebalance_timeout_ms(self) -> int:
        """Version 0 has one timeout for session and rebalance."""
        given = self.request.rebalance_timeout_ms
        return self.request.session_timeout_ms if given < 0 else given


def join(group: ClassicGroup, joining: Joining) -> None:
    """JoinGroup. Raises KafkaError to refuse; otherwise the reply is called, at once or at the barrier's end."""
    request, members = joining.request, group.members
    member_id, instance_id = request.member_id, request.group_instance_id
    if not _has_place_for(group, member_id):
        group.drop_member(member_id)
        group.join_barrier.complete_if_all_joined()
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"{len(members.by_id)} members")
    if not _is_supported(group, request.protocol_type, joining.protocols):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no protocol in common with the group")
    known = members.by_id.get(member_id)
    metadata = sum(len(name) + len(data) for name, data in joining.protocols.items())
    group.around.memory.check(joining.client, MEMBER_BYTES + metadata - (known.weight if known is not None else 0))
    if not member_id:
        _join_without_id(group, joining)
    elif instance_id is None and member_id in members.pending:
        _add(group, joining, member_id)
    else:
        _rejoin(group, joining, members.check(member_id, instance_id))


def _has_place_for(group: ClassicGroup, member_id: str) -> bool:
    limit, members = group.around.config.group_max_size, group.members
    member = members.by_id.get(member_id)
    if group.state is State.EMPTY:
        return True
    if group.state is State.PREPARING_REBALANCE:
        # Count those who have joined, not those still listed: the limit may have been lowered since, and then the last
        # to join must go.
        return members.joined < limit or (member is not None and member.waiting_join is not None)
    return member is not None or len(members.by_id) < limit


def _is_supported(group: ClassicGroup, protocol_type: str, protocols: Mapping[str, bytes]) -> bool:
    if not group.members.by_id:
        return bool(protocol_type) and bool(protocols)
    return protocol_type == group.protocol_type and group.members.all_support_one(protocols)


# --- without an id ----------------------------------------------------------------------------------------------------


def _join_without_id(group: ClassicGroup, joining: Joining) -> None:
    instance_id = joining.request.group_instance_id
    new_id = f"{joining.client_id if instance_id is None else instance_id}-{group.around.new_suffix()}"
    if instance_id is not None and instance_id in group.members.static:
        _take_over_static(group, joining, group.members.static[instance_id], new_id)
    elif instance_id is None and joining.waiting.version >= _KNOWN_ID_SINCE:
        _hand_out_id(group, new_id, joining)
    else:
        _add(group, joining, new_id)


def _hand_out_id(group: ClassicGroup, member_id: str, joining: Joining) -> None:
    def expire() -> None:
        group.members.forget_pending(member_id)
        group.join_barrier.complete_if_all_joined()

    group.members.await_id(member_id, joining.client, joining.request.session_timeout_ms, expire)
    refusal = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    group.around.outbox.put(joining.waiting.reply, refusal)


def _add(group: ClassicGroup, joining: Joining, member_id: str) -> None:
    request, around = joining.request, group.around
    member = group.new_member(
        member_id,
        request.group_instance_id,
        joining.client_id,
        joining.client_host,
        request.session_timeout_ms,
        joining.rebalance_timeout_ms,
    )
    member.protocols = joining.protocols
    member.is_new = True
    if not group.members.by_id:
        group.protocol_type = request.protocol_type
    group.members.enrol(member)
    group.expect(member)
    group.members.wait_join(member, joining.waiting)
    group.members.forget_pending(member_id)
    if group.leader is None:
        group.leader = member_id
    group.join_barrier.note_newcomer()
    member.session.set(around.deadlines.clock() + around.config.new_member_join_timeout_ms / 1000)
    group.join_barrier.membership_changed(f"new member {member_id}: {joining.reason}")


# --- joining again ----------------------------------------------------------------------------------------------------


def _rejoin(group: ClassicGroup, joining: Joining, member: Member) -> None:
    if group.state is State.PREPARING_REBALANCE:
        changes_group = True
    elif group.state is State.STABLE and member.member_id == group.leader:
        changes_group = True  # so a leader says that the assignment is outdated, e.g. for more partitions
    else:
        changes_group = not member.same_protocols(joining.protocols)
    if not changes_group:
        # It missed the answer, or asks for the current generation before it syncs.
        group.members.renew(member)
        refuse_join(group, member, ErrorCode.REBALANCE_IN_PROGRESS)
        group.around.outbox.put(joining.waiting.reply, join_answer(group, member))
        return
    _update(group, member, joining)
    group.join_barrier.membership_changed(f"member {member.member_id} joined again: {joining.reason}")


def _update(group: ClassicGroup, member: Member, joining: Joining) -> None:
    refuse_join(group, member, ErrorCode.REBALANCE_IN_PROGRESS)  # an earlier request whose sender no longer waits
    group.members.set_protocols(member, joining.protocols)
    member.session_timeout_ms = joining.request.session_timeout_ms
    member.rebalance_timeout_ms = joining.rebalance_timeout_ms
    group.members.wait_join(member, joining.waiting)


# --- static members ---------------------------------------------------------------------------------------------------


def _take_over_static(group: ClassicGroup, joining: Joining, old_id: str, new_id: str) -> None:
    old = group.members.by_id[old_id]
    before = _Before(old_id, group.leader, old.protocols, old.session_timeout_ms, old.rebalance_timeout_ms)
    member = _rename_static(group, old, new_id)
    _update(group, member, joining)
    group.members.renew(member)
    log.info(
        "group %s: static member %s has the id %s now, before it had %s",
        group.group_id,
        member.instance_id,
        new_id,
        old_id,
    )
    if group.state is State.COMPLETING_REBALANCE:
        # The leader may know only the old id: its assignment would miss the new one.
        group.join_barrier.prepare_rebalance(f"static member {member.instance_id} came back")
    elif group.state is State.STABLE and group.members.vote() == group.protocol:
        _write_renamed(group, member, joining.waiting, before)
    elif group.state is State.STABLE:
        group.join_barrier.prepare_rebalance(f"static member {member.instance_id} came back with other protocols")
    else:
        group.join_barrier.complete_if_all_joined()


class _Before(NamedTuple):
    """A static member before it took over its place. This state is restored if the new id cannot be stored."""

    member_id: str
    leader: str | None
    protocols: dict[str, bytes]
    session_timeout_ms: int
    rebalance_timeout_ms: int


def _write_renamed(group: ClassicGroup, member: Member, waiting: WaitingJoin, before: _Before) -> None:
    def durable(error: ErrorCode) -> None:
        if member.waiting_join is not waiting or group.state is not State.STABLE:
            return  # meanwhile a rebalance or a fencing has answered it
        if error:
            group.members.set_protocols(member, before.protocols)
            member.session_timeout_ms = before.session_timeout_ms
            member.rebalance_timeout_ms = before.rebalance_timeout_ms
            refuse_join(group, member, told(error), member_id="")
            group.members.renew(_rename_static(group, member, before.member_id))
            return
        group.members.renew(member)
        answer_join(group, member, known_leader=before.leader)

    group.around.persist(group.group_id, group.records(), durable)


def _rename_static(group: ClassicGroup, member: Member, new_id: str) -> Member:
    """Move the place to a new id; requests with the old id are fenced."""
    old_id = member.member_id
    refuse_join(group, member, ErrorCode.FENCED_INSTANCE_ID)
    refuse_sync(group, member, ErrorCode.FENCED_INSTANCE_ID)
    group.members.unenrol(member)
    renamed = group.new_member(
        new_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
    )
    renamed.protocols = member.protocols
    renamed.assignment = member.assignment
    group.members.enrol(renamed)
    if group.leader == old_id:
        group.leader = new_id
    return renamed
