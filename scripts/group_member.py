"""A member of a classic consumer group with the range assignor, for the command line."""

from __future__ import annotations

from barnabas.client.cluster import ClientError, Cluster, check
from barnabas.wire.codegen import codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas.wire.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from barnabas.wire.types import Message

SESSION_MS, REBALANCE_MS = 10000, 60000
RETRY = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
REJOIN = {
    ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID,
}  # fmt: skip
# The form with one group, and with topics by name.
OFFSET_FETCH, OFFSET_COMMIT, LEAVE = 7, 9, 3


class Rebalance(Exception):
    """The generation is over: join again."""


def embedded(message: Message, version: int) -> bytes:
    """A message of the consumer protocol: its version, then its body."""
    return version.to_bytes(2, "big") + codec(type(message), version).build(message)


class GroupMember:
    """One membership of one topic."""

    def __init__(self, cluster: Cluster, group: str, topic: str, partitions: int) -> None:
        self.cluster, self.group, self.topic, self.partitions = cluster, group, topic, partitions
        self.member_id, self.generation = "", -1
        self.wire = cluster.coordinator(group)

    def join(self) -> list[int]:
        """Enter the next generation; gives the partitions that are ours in it."""
        while True:
            mine = embedded(ConsumerProtocolSubscription(topics=[self.topic]), 1)
            request = JoinGroupRequest(
                group_id=self.group, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id, protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol("range", mine)],
            )  # fmt: skip
            joined = self.wire.ask(request, JoinGroupResponse, wait=REBALANCE_MS / 1000)
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
                continue
            if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
                continue
            if joined.error_code in RETRY:
                continue
            check(joined.error_code, f"Join of group {self.group}")
            self.member_id, self.generation = joined.member_id, joined.generation_id
            shares = self._shares(joined) if joined.leader == joined.member_id else []
            sync = SyncGroupRequest(
                group_id=self.group, generation_id=self.generation, member_id=self.member_id,
                protocol_type="consumer", protocol_name="range", assignments=shares,
            )  # fmt: skip
            synced = self.wire.ask(sync, SyncGroupResponse, wait=REBALANCE_MS / 1000)
            if synced.error_code in REJOIN | RETRY:
                continue
            check(synced.error_code, f"Sync of group {self.group}")
            if not synced.assignment:
                return []
            assigned, _ = codec(ConsumerProtocolAssignment, 0).decode(synced.assignment, 2)
            return [p for t in assigned.assigned_partitions if t.topic == self.topic for p in t.partitions]

    def _shares(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """The range assignment: contiguous runs, the first members getting one more where it does not divide."""
        topics_of = {}
        for member in joined.members:
            topics_of[member.member_id] = codec(ConsumerProtocolSubscription, 0).decode(member.metadata, 2)[0].topics
        taken: dict[str, list[TopicPartition]] = {member: [] for member in topics_of}
        for topic in sorted({t for topics in topics_of.values() for t in topics}):
            members = sorted(m for m, topics in topics_of.items() if topic in topics)
            count = len(self.cluster.leaders(topic))
            share, more = divmod(count, len(members))
            first = 0
            for i, name in enumerate(members):
                size = share + (i < more)
                taken[name].append(TopicPartition(topic, list(range(first, first + size))))
                first += size
        return [
            SyncGroupRequestAssignment(member, embedded(ConsumerProtocolAssignment(assigned_partitions=parts), 1))
            for member, parts in taken.items()
        ]

    def heartbeat(self) -> None:
        """Keep the session. Raises Rebalance when the generation is over."""
        request = HeartbeatRequest(self.group, self.generation, self.member_id)
        self._check(self.wire.ask(request, HeartbeatResponse).error_code, "Heartbeat")

    def committed(self, partitions: list[int]) -> dict[int, int]:
        """The group's positions, for the partitions that have one."""
        if not partitions:
            return {}
        request = OffsetFetchRequest(group_id=self.group, topics=[OffsetFetchRequestTopic(self.topic, partitions)])
        answer = self.wire.ask(request, OffsetFetchResponse, version=OFFSET_FETCH)
        check(answer.error_code, "Committed offsets")
        found = {p.partition_index: p.committed_offset for t in answer.topics for p in t.partitions}
        return {p: offset for p, offset in found.items() if offset >= 0}

    def commit(self, positions: dict[int, int]) -> None:
        """Store the positions. Raises Rebalance if the generation is over."""
        if not positions:
            return
        parts = [OffsetCommitRequestPartition(p, offset) for p, offset in positions.items()]
        request = OffsetCommitRequest(
            group_id=self.group, generation_id_or_member_epoch=self.generation, member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(self.topic, partitions=parts)],
        )  # fmt: skip
        answer = self.wire.ask(request, OffsetCommitResponse, version=OFFSET_COMMIT)
        for part in answer.topics[0].partitions:
            self._check(part.error_code, f"Commit of {self.topic}-{part.partition_index}")

    def leave(self, positions: dict[int, int]) -> None:
        """Commit and go, so that the others need not wait for the session to end."""
        try:
            self.commit(positions)
        except (ClientError, Rebalance):
            pass
        try:
            request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])
            self.wire.ask(request, LeaveGroupResponse, version=LEAVE)
        except ClientError:
            pass

    def _check(self, code: int, what: str) -> None:
        if code in REJOIN:
            raise Rebalance
        if code not in RETRY:
            check(code, what)
