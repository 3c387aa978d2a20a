"""Groups: their committed offsets, and the member of a classic consumer group with the range assignor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, check, only
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.codegen import message_codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas.wire.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from barnabas.wire.records.consumer_protocol import (
    TopicPartition as AssignedPartitions,
)
from barnabas.wire.types import Message

R = TypeVar("R", bound=Message)
SESSION_MS, REBALANCE_MS = 10_000, 60_000
#: The coordinator is not available yet, or has moved: look for it again.
_ELSEWHERE = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
_REJOIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})
# The last versions for a single group, and with topics by name.
_OFFSET_FETCH, _OFFSET_COMMIT, _LEAVE, _DESCRIBE = 7, 9, 3, 5


class Rebalance(Exception):
    """The generation has ended: join again."""


class Committed(NamedTuple):
    """A group's committed position, and its metadata."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


def ask_coordinator(
    cluster: Cluster,
    group: str,
    request: Message,
    response: type[R],
    code: Callable[[R], int],
    *,
    last_version: int | None = None,
    wait: float = 0,
) -> R:
    """Ask a group's coordinator; if it has moved, ask the new one.

    `code` extracts the answer's error code. Raises ClientError.
    """

    def attempt() -> R:
        answer = cluster.find_coordinator(group).ask(request, response, last_version=last_version, wait=wait)
        if code(answer) in _ELSEWHERE:
            cluster.forget_coordinator(group)
            check(code(answer), f"Group {group}")
        return answer

    return cluster.again(attempt)


def committed(
    cluster: Cluster, group: str, keys: Iterable[TopicPartition] | None = None, *, stable: bool = False
) -> dict[TopicPartition, Committed]:
    """A group's committed positions, all or for these partitions; partitions without one are left out.

    With `stable`, waits for the end of transactions that commit some of them. Raises ClientError.
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in keys or ():
        topics.setdefault(topic, []).append(partition)
    asked = None if keys is None else [OffsetFetchRequestTopic(name, of) for name, of in topics.items()]
    request = OffsetFetchRequest(group_id=group, topics=asked, require_stable=stable)

    def attempt() -> OffsetFetchResponse:
        answer = ask_coordinator(
            cluster, group, request, OffsetFetchResponse, lambda said: said.error_code, last_version=_OFFSET_FETCH
        )
        for code in (answer.error_code, *(part.error_code for topic in answer.topics for part in topic.partitions)):
            check(code, f"Offsets of group {group}")
        return answer

    answer = cluster.again(attempt)
    found: dict[TopicPartition, Committed] = {}
    for told in answer.topics:
        for part in told.partitions:
            if part.committed_offset >= 0:
                found[told.name, part.partition_index] = Committed(
                    part.committed_offset, part.metadata or "", part.committed_leader_epoch
                )
    return found


def commit(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    *,
    member_id: str = "",
    generation: int = -1,
) -> dict[TopicPartition, int]:
    """Commit positions, as a member or for a group without members. Returns an error code for each partition.

    Raises ClientError.
    """
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), (offset, metadata, leader_epoch) in offsets.items():
        topics.setdefault(topic, []).append(OffsetCommitRequestPartition(partition, offset, leader_epoch, metadata))
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name, partitions=partitions) for name, partitions in topics.items()],
    )
    answer = ask_coordinator(
        cluster, group, request, OffsetCommitResponse, _first_commit_code, last_version=_OFFSET_COMMIT
    )
    told = {(topic.name, part.partition_index): part.error_code for topic in answer.topics for part in topic.partitions}
    for topic, partition in offsets:
        if (topic, partition) not in told:
            raise ClientError(f"Commit of {topic}-{partition}: the broker's answer does not have it")
    return told


def _first_commit_code(answer: OffsetCommitResponse) -> int:
    return next((part.error_code for topic in answer.topics for part in topic.partitions if part.error_code), 0)


def delete_offsets(cluster: Cluster, group: str, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Delete positions of a group without members. Returns an error code for each partition.

    Raises ClientError.
    """
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, partition in keys:
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition))
    request = OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(name, parts) for name, parts in topics.items()])
    answer = ask_coordinator(cluster, group, request, OffsetDeleteResponse, lambda told: told.error_code)
    check(answer.error_code, f"Group {group}")
    return {(topic.name, part.partition_index): part.error_code for topic in answer.topics for part in topic.partitions}


def list_groups(cluster: Cluster) -> list[ListedGroup]:
    """All groups of the cluster. Each broker knows only those that it coordinates. Raises ClientError."""
    found = []
    for node_id in cluster.node_ids():
        answer = cluster.ask(partial(cluster.broker, node_id), ListGroupsRequest(), ListGroupsResponse)
        check(answer.error_code, "Groups")
        found += answer.groups
    return found


def describe_group(cluster: Cluster, group: str) -> DescribedGroup:
    """A group's state and members; a missing group is Dead. Raises ClientError."""
    request = DescribeGroupsRequest(groups=[group])
    answer = ask_coordinator(
        cluster,
        group,
        request,
        DescribeGroupsResponse,
        lambda told: told.groups[0].error_code if told.groups else 0,
        last_version=_DESCRIBE,
    )
    found = only(answer.groups, f"Group {group}")
    check(found.error_code, f"Group {group}")
    return found


def delete_group(cluster: Cluster, group: str) -> None:
    """Delete a group without members, together with its positions. Raises ClientError."""
    request = DeleteGroupsRequest(groups_names=[group])
    answer = ask_coordinator(
        cluster,
        group,
        request,
        DeleteGroupsResponse,
        lambda told: told.results[0].error_code if told.results else 0,
    )
    check(only(answer.results, f"Group {group}").error_code, f"Group {group}")


def _embedded(message: Message, version: int) -> bytes:
    """A message of the consumer protocol: its version, then its body."""
    return version.to_bytes(2, "big") + message_codec(type(message), version).build(message)


class GroupMember:
    """One membership of one topic."""

    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        self.cluster, self.group, self.topic = cluster, group, topic
        self.member_id, self.generation = "", -1

    def join(self) -> list[int]:
        """Enter the next generation, and return our partitions in it. Raises ClientError."""
        while True:
            joined = self._join()
            if joined is None:
                continue
            self.member_id, self.generation = joined.member_id, joined.generation_id
            shares = self._shares(joined) if joined.leader == joined.member_id else []
            assignment = self._sync(shares)
            if assignment is None:
                continue
            if not assignment:
                return []
            assigned, _ = message_codec(ConsumerProtocolAssignment, 0).decode(assignment, 2)
            return [p for t in assigned.assigned_partitions if t.topic == self.topic for p in t.partitions]

    def _join(self) -> JoinGroupResponse | None:
        """Send one JoinGroup; None if another one is needed."""
        mine = _embedded(ConsumerProtocolSubscription(topics=[self.topic]), 1)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", mine)],
        )
        joined = self._ask(request, JoinGroupResponse, lambda told: told.error_code, wait=REBALANCE_MS / 1000)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return None
        if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
            return None
        if joined.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return None
        check(joined.error_code, f"Join of group {self.group}")
        return joined

    def _sync(self, shares: list[SyncGroupRequestAssignment]) -> bytes | None:
        """Our assignment; None if the generation has ended."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )
        synced = self._ask(request, SyncGroupResponse, lambda told: told.error_code, wait=REBALANCE_MS / 1000)
        if synced.error_code in _REJOIN:
            return None
        check(synced.error_code, f"Sync of group {self.group}")
        return synced.assignment

    def _shares(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """The range assignment: contiguous ranges; if they cannot be equal, the first members get one more each."""
        topics_of = {}
        for member in joined.members:
            subscription, _ = message_codec(ConsumerProtocolSubscription, 0).decode(member.metadata, 2)
            topics_of[member.member_id] = subscription.topics
        taken: dict[str, list[AssignedPartitions]] = {member: [] for member in topics_of}
        for topic in sorted({t for topics in topics_of.values() for t in topics}):
            members = sorted(m for m, topics in topics_of.items() if topic in topics)
            count = self._partitions(topic)
            share, more = divmod(count, len(members))
            first = 0
            for i, name in enumerate(members):
                size = share + (i < more)
                taken[name].append(AssignedPartitions(topic, list(range(first, first + size))))
                first += size
        return [
            SyncGroupRequestAssignment(member, _embedded(ConsumerProtocolAssignment(assigned_partitions=parts), 1))
            for member, parts in taken.items()
        ]

    def _partitions(self, topic: str) -> int:
        """The topic's current number of partitions."""
        found = only(self.cluster.metadata([topic]), f"Topic {topic}")
        check(found.error_code, f"Topic {topic}")
        return len(found.partitions)

    def heartbeat(self) -> None:
        """Keep the session alive. Raises Rebalance when the generation has ended."""
        request = HeartbeatRequest(self.group, self.generation, self.member_id)
        answer = self._ask(request, HeartbeatResponse, lambda told: told.error_code)
        self._check(answer.error_code, "Heartbeat")

    def committed(self, partitions: list[int]) -> dict[int, int]:
        """The group's positions. Partitions without one are left out."""
        if not partitions:
            return {}
        found = committed(self.cluster, self.group, [(self.topic, partition) for partition in partitions])
        return {partition: position.offset for (_, partition), position in found.items()}

    def commit(self, positions: dict[int, int]) -> None:
        """Commit the positions. Raises Rebalance if the generation has ended."""
        if not positions:
            return
        offsets = {(self.topic, partition): Committed(offset) for partition, offset in positions.items()}
        told = commit(self.cluster, self.group, offsets, member_id=self.member_id, generation=self.generation)
        for (topic, partition), code in told.items():
            self._check(code, f"Commit of {topic}-{partition}")

    def leave(self, positions: dict[int, int]) -> None:
        """Commit and leave, so that the others need not wait for the session to end.

        A broker that is gone is not waited for.
        """
        with self.cluster.without_patience():
            try:
                self.commit(positions)
            except (ClientError, Rebalance):
                pass
            try:
                request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])
                self._ask(request, LeaveGroupResponse, lambda told: told.error_code, last_version=_LEAVE)
            except ClientError:
                pass

    def _ask(
        self,
        request: Message,
        response: type[R],
        code: Callable[[R], int],
        *,
        last_version: int | None = None,
        wait: float = 0,
    ) -> R:
        return ask_coordinator(self.cluster, self.group, request, response, code, last_version=last_version, wait=wait)

    def _check(self, code: int, what: str) -> None:
        if code in _REJOIN:
            raise Rebalance
        check(code, what)
