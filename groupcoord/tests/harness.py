"""A coordinator with a clock that the test moves, and a store that the test controls."""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from barnabas.groupcoord.classic.group import ClassicGroup
from barnabas.groupcoord.config import GroupConfig
from barnabas.groupcoord.coordinator import GroupCoordinator
from barnabas.groupcoord.log.image import PartitionImage
from barnabas.groupcoord.log.records import CoordinatorRecord
from barnabas.groupcoord.log.store import ProducerEpoch
from barnabas.groupcoord.topics import Topic
from barnabas.wire.codegen import message_codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas.wire.records.consumer_protocol import ConsumerProtocolSubscription

R = TypeVar("R")
START_MS = 1_700_000_000_000
ORDERS = Topic("orders", b"o" * 16, 3)
PAYMENTS = Topic("payments", b"p" * 16, 2)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return START_MS + int(self.now * 1000)


class TopicList:
    def __init__(self, *topics: Topic) -> None:
        self.topics = list(topics)

    def by_name(self, name: str) -> Topic | None:
        return next((topic for topic in self.topics if topic.name == name), None)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return next((topic for topic in self.topics if topic.topic_id == topic_id), None)


class MemoryStore:
    """Appends are durable at once; after `hold()`, only when the test says so, in order in each partition."""

    def __init__(self) -> None:
        self.log: dict[int, list[CoordinatorRecord]] = defaultdict(list)
        self.waiting: dict[int, deque[tuple[list[CoordinatorRecord], Callable[[ErrorCode], None]]]] = defaultdict(deque)
        self.is_held = False
        self.fails_with = ErrorCode.NONE

    def append(
        self,
        partition: int,
        records: Sequence[CoordinatorRecord],
        done: Callable[[ErrorCode], None],
        *,
        producer: ProducerEpoch | None = None,
    ) -> None:
        assert records
        self.waiting[partition].append((list(records), done))
        if not self.is_held:
            self.release(partition, self.fails_with)

    def hold(self) -> None:
        self.is_held = True

    def release(self, partition: int, error: ErrorCode = ErrorCode.NONE) -> None:
        """Let the oldest append of a partition succeed or fail."""
        records, done = self.waiting[partition].popleft()
        if not error:
            self.log[partition] += records
        done(error)

    def release_all(self, error: ErrorCode = ErrorCode.NONE) -> None:
        while any(self.waiting.values()):
            for partition, waiting in list(self.waiting.items()):
                if waiting:
                    self.release(partition, error)

    def image(self, partition: int) -> PartitionImage:
        image = PartitionImage()
        for record in self.log[partition]:
            image.apply(record.key, record.value)
        return image


class Reply(Generic[R]):
    """A reply that must be called at most once."""

    def __init__(self) -> None:
        self.response: R | None = None

    def __call__(self, response: R) -> None:
        assert self.response is None, "answered twice"
        self.response = response

    @property
    def is_open(self) -> bool:
        return self.response is None

    def get(self) -> R:
        assert self.response is not None, "not answered"
        return self.response


def subscription(*topics: str) -> bytes:
    return b"\0\0" + message_codec(ConsumerProtocolSubscription, 0).build(
        ConsumerProtocolSubscription(topics=list(topics))
    )


RANGE = (("range", subscription("orders")),)


class World:
    """One coordinator that owns all partitions, with short forms of the requests."""

    def __init__(self, config: GroupConfig | None = None, *topics: Topic, store: MemoryStore | None = None) -> None:
        self.config = config or GroupConfig()
        self.clock = Clock()
        self.store = store or MemoryStore()
        self.topics = TopicList(*(topics or (ORDERS, PAYMENTS)))
        self._count = itertools.count(1)
        self.coordinator = self.start()

    def start(self) -> GroupCoordinator:
        """A coordinator that has read the store's content, as after a restart."""
        self.coordinator = GroupCoordinator(
            self.config,
            self.store,
            self.clock,
            topics=self.topics,
            wall_ms=self.clock.wall_ms,
            new_suffix=lambda: f"{next(self._count)}",
        )
        for partition in range(self.config.offsets_topic_num_partitions):
            self.coordinator.finish_load(self.coordinator.begin_load(partition), self.store.image(partition))
        return self.coordinator

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and fire every deadline on the way when it is due."""
        end = self.clock.now + seconds
        while (due := self.coordinator.deadlines.next()) <= end:
            self.clock.now = max(due, self.clock.now)
            self.coordinator.deadlines.fire_due()
        self.clock.now = end

    @property
    def classic_groups(self) -> dict[str, ClassicGroup]:
        return {name: each for name, each in self.coordinator.groups.items() if isinstance(each, ClassicGroup)}

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        version: int = 9,
        protocols: Sequence[tuple[str, bytes]] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        client_id: str = "c",
        host: str = "/10.0.0.1",
    ) -> Reply[JoinGroupResponse]:
        reply: Reply[JoinGroupResponse] = Reply()
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols],
        )
        self.coordinator.join(request, version=version, client_id=client_id, client_host=host, reply=reply)
        return reply

    def new_member(self, **more: object) -> Reply[JoinGroupResponse]:
        """The two joins of a dynamic member: it receives its id, and comes back with it."""
        told = self.join(**more).get()  # type: ignore[arg-type]
        assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return self.join(told.member_id, **more)  # type: ignore[arg-type]

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        version: int = 5,
        protocol_type: str | None = "consumer",
        protocol: str | None = "range",
    ) -> Reply[SyncGroupResponse]:
        reply: Reply[SyncGroupResponse] = Reply()
        given = [SyncGroupRequestAssignment(member, data) for member, data in (assignments or {}).items()]
        request = SyncGroupRequest(group, generation, member_id, instance, protocol_type, protocol, given)
        self.coordinator.sync(request, version=version, reply=reply)
        return reply

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> int:
        return self.coordinator.heartbeat(HeartbeatRequest(group, generation, member_id, instance)).error_code

    def leave(self, *members: tuple[str, str | None], group: str = "g") -> LeaveGroupResponse:
        identities = [MemberIdentity(member_id, instance) for member_id, instance in members]
        return self.coordinator.leave(LeaveGroupRequest(group_id=group, members=identities), 5)

    def stable(self, count: int = 1, *, group: str = "g", instances: Sequence[str | None] = ()) -> list[str]:
        """A stable group of `count` members. Returns their ids, the leader's first."""
        instances = instances or [None] * count
        replies: list[tuple[Reply[JoinGroupResponse], str | None]] = []
        for instance in instances:
            if instance is None:
                replies.append((self.new_member(group=group), None))
            else:
                replies.append((self.join(group=group, instance=instance), instance))
            for number, (reply, name) in enumerate(replies[:-1]):
                if not reply.is_open:
                    replies[number] = (self.join(reply.get().member_id, group=group, instance=name), name)
        answers = [reply.get() for reply, _ in replies]
        leader = next(answer for answer in answers if answer.members)
        ids = [answer.member_id for answer in answers]
        plan = {member: f"a-{member}".encode() for member in ids}
        order = [leader.member_id, *(each for each in ids if each != leader.member_id)]
        named = dict(zip(ids, instances, strict=True))
        for member in reversed(order):
            self.sync(
                member, leader.generation_id, plan if member == order[0] else None, group=group, instance=named[member]
            )
        if not self.store.is_held:
            assert self.describe(group).group_state == "Stable"
        return order

    def describe(self, group: str = "g", version: int = 6) -> DescribedGroup:
        return self.coordinator.describe(DescribeGroupsRequest(groups=[group]), version).groups[0]

    def commit(
        self,
        offset: int,
        member_id: str = "",
        generation: int = -1,
        *,
        group: str = "g",
        topic: Topic = ORDERS,
        partition: int = 0,
        metadata: str | None = "",
        epoch: int = -1,
        instance: str | None = None,
        version: int = 9,
        retention_ms: int = -1,
    ) -> Reply[OffsetCommitResponse]:
        reply: Reply[OffsetCommitResponse] = Reply()
        given = OffsetCommitRequestPartition(partition, offset, epoch, metadata)
        by_id = version >= 10
        asked = OffsetCommitRequestTopic(
            name="" if by_id else topic.name, topic_id=topic.topic_id if by_id else bytes(16), partitions=[given]
        )
        request = OffsetCommitRequest(group, generation, member_id, instance, retention_ms, [asked])
        self.coordinator.commit(request, version=version, reply=reply)
        return reply

    def commit_error(self, *args: object, **more: object) -> ErrorCode:
        response = self.commit(*args, **more).get()  # type: ignore[arg-type]
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def committed(
        self, group: str = "g", *, stable: bool = False
    ) -> dict[tuple[str, int], tuple[int, int, str | None]]:
        """Everything that a client sees: offset, leader epoch, metadata."""
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=stable
        )
        answer = self.coordinator.fetch_offsets(request, 9).groups[0]
        assert not answer.error_code
        return {
            (topic.name, each.partition_index): (each.committed_offset, each.committed_leader_epoch, each.metadata)
            for topic in answer.topics
            for each in topic.partitions
            if each.committed_offset >= 0
        }
