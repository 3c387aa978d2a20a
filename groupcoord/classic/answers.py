"""A classic group's answers to waiting joins and syncs. Each waiting request is answered exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.groupcoord.classic.member import Member
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.wire.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from barnabas.groupcoord.classic.group import ClassicGroup

_SKIP_ASSIGNMENT_SINCE = 9  # from this JoinGroup version on, a leader can be told to skip the assignment


def answer_join(group: ClassicGroup, member: Member, *, known_leader: str | None = None) -> None:
    """Answer the member's waiting join, if there is one.

    `known_leader` is the leader before this member took over its id. It makes the member skip the assignment.
    """
    waiting = group.members.take_waiting_join(member)
    if waiting is None:
        return
    if known_leader is None:
        answer = join_answer(group, member)
    elif waiting.version >= _SKIP_ASSIGNMENT_SINCE:
        answer = join_answer(group, member, skip_assignment=member.member_id == group.leader)
    else:
        # It cannot be told to skip. With the old leader's id it takes itself for a follower, and only syncs.
        answer = join_answer(group, member, leader=known_leader)
    group.around.outbox.put(waiting.reply, answer)


def refuse_join(group: ClassicGroup, member: Member, error: ErrorCode, *, member_id: str | None = None) -> None:
    """Refuse the waiting join, if there is one. `member_id` is an id for the client that replaces its own."""
    waiting = group.members.take_waiting_join(member)
    if waiting is not None:
        told_id = member.member_id if member_id is None else member_id
        group.around.outbox.put(waiting.reply, JoinGroupResponse(error_code=error, member_id=told_id))


def answer_sync(group: ClassicGroup, member: Member) -> None:
    """Answer the waiting sync, if there is one. The member's session could not expire while it waited."""
    reply, member.waiting_sync = member.waiting_sync, None
    if reply is not None:
        group.around.outbox.put(reply, sync_answer(group, member))
        group.members.renew(member)


def refuse_sync(group: ClassicGroup, member: Member, error: ErrorCode) -> None:
    """Refuse the waiting sync, if there is one."""
    reply, member.waiting_sync = member.waiting_sync, None
    if reply is not None:
        group.around.outbox.put(reply, SyncGroupResponse(error_code=error))
        group.members.renew(member)


def join_answer(
    group: ClassicGroup, member: Member, *, leader: str | None = None, skip_assignment: bool = False
) -> JoinGroupResponse:
    """The generation as this member sees it. Only the leader sees all members and their metadata."""
    leader = leader or group.leader or ""
    listed: list[JoinGroupResponseMember] = []
    if member.member_id == leader:
        listed = [
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.protocols.get(group.protocol or "", b""),
            )
            for each in group.members.by_id.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=leader,
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=listed,
    )


def sync_answer(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )
