"""Requests of members of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

They concern classic groups only. For a member of this protocol, a group of another type has no members; only a join
gets an error because the name is in use. While a shard is loading, every heartbeat is accepted, because it cannot be
checked yet.
"""

from __future__ import annotations

from barnabas.groupcoord.classic.group import ClassicGroup
from barnabas.groupcoord.classic.member import JoinReply, SyncReply
from barnabas.groupcoord.group import Surroundings
from barnabas.groupcoord.log.shard import Shards
from barnabas.groupcoord.memory_budget import GROUP_BYTES
from barnabas.groupcoord.shares import client_at
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_HEARTBEATS = {code: HeartbeatResponse(error_code=code) for code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)}
_MANY_LEAVE_SINCE = 3


class Membership:
    """Each reply is called exactly once, when the answer is known."""

    def __init__(self, shards: Shards, around: Surroundings) -> None:
        self._shards = shards
        self._around = around
        self._groups = shards.groups
        self._outbox = around.outbox

    def join(
        self, request: JoinGroupRequest, *, version: int, client_id: str, client_host: str, reply: JoinReply
    ) -> None:
        """JoinGroup. The reply is called at once for a refusal, otherwise when the generation begins."""
        with self._outbox:
            try:
                group = self._group_to_join(request, client_host)
                group.join(request, version=version, client_id=client_id, client_host=client_host, reply=reply)
            except KafkaError as refusal:
                keeps_id = refusal.code is not ErrorCode.GROUP_MAX_SIZE_REACHED
                member_id = request.member_id if keeps_id else ""
                self._outbox.put(reply, JoinGroupResponse(error_code=refusal.code, member_id=member_id))

    def sync(self, request: SyncGroupRequest, *, version: int, reply: SyncReply) -> None:
        """SyncGroup. The reply is called when the assignment is durable, or at once for a refusal."""
        with self._outbox:
            try:
                self._group(request.group_id).sync(request, version=version, reply=reply)
            except KafkaError as refusal:
                self._outbox.put(reply, SyncGroupResponse(error_code=refusal.code))

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Heartbeat: one dictionary look-up, and one deadline moved."""
        try:
            group = self._groups.get(request.group_id)
            if not isinstance(group, ClassicGroup):
                group = self._group(request.group_id)
            return _HEARTBEATS[group.heartbeat(request)]
        except KafkaError as refusal:
            if refusal.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return _HEARTBEATS[ErrorCode.NONE]
            return HeartbeatResponse(error_code=refusal.code)

    def leave(self, request: LeaveGroupRequest, version: int) -> LeaveGroupResponse:
        """LeaveGroup, for one member up to version 2, for many from version 3."""
        one = version < _MANY_LEAVE_SINCE
        leaving = [MemberIdentity(member_id=request.member_id)] if one else request.members
        with self._outbox:
            try:
                results = self._group(request.group_id).leave(leaving)
            except KafkaError as refusal:
                if refusal.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                    return LeaveGroupResponse(error_code=refusal.code)
                results = [refusal.code] * len(leaving)
        if one:
            return LeaveGroupResponse(error_code=results[0])
        return LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=result
                )
                for identity, result in zip(leaving, results, strict=True)
            ]
        )

    # --- the group of a request ---------------------------------------------------------------------------------------

    def _group(self, group_id: str) -> ClassicGroup:
        """The group of a member's request. A group that does not exist has no members."""
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        self._shards.of(group_id)
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no classic group {group_id}")

    def _group_to_join(self, request: JoinGroupRequest, client_host: str) -> ClassicGroup:
        """The group to join. A join without a member id creates it."""
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        config = self._around.config
        shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT, f"not between {shortest} and {longest} ms")
        group = self._groups.get(request.group_id)
        if group is None:
            return self._group(request.group_id) if request.member_id else self._create(request, client_host)
        if not isinstance(group, ClassicGroup):
            told = f"{request.group_id} is a group of type {group.group_type}"
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, told)
        return group

    def _create(self, request: JoinGroupRequest, client_host: str) -> ClassicGroup:
        shard = self._shards.of(request.group_id)
        if not (request.protocol_type and request.protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "protocol type or protocols are missing")
        client = client_at(client_host)
        self._around.memory.check(client, GROUP_BYTES + len(request.group_id))
        return self._shards.add(shard, ClassicGroup(request.group_id, self._around, client))
