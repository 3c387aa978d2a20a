"""The group coordinator: which groups are coordinated here, their members' requests and their committed offsets.

It is a state machine without I/O: time comes from a clock, records go to a `Store`, answers to the reply that came with
the request, and whoever runs it calls `advance` when `next_deadline` has come (`groupcoord.timers` does). All calls are
made from one thread.

A partition of `__consumer_offsets` is a *shard*: loaded when this broker becomes its owner, unloaded when it no longer
is. Requests for groups in a shard that is loading are refused with COORDINATOR_LOAD_IN_PROGRESS (heartbeats are
accepted blindly, as there is nothing yet to judge them by), for others with NOT_COORDINATOR.

Offsets: a commit is visible when it is durable, never before. What a commit, a deletion or an expiry does is applied in
the order in which the store has it, so memory and log cannot disagree.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence

from barnabas.groupcoord.config import GroupConfig
from barnabas.groupcoord.deadlines import Deadlines
from barnabas.groupcoord.group import ClassicGroup, State, Surroundings
from barnabas.groupcoord.image import PartitionImage
from barnabas.groupcoord.member import JoinReply, SyncReply
from barnabas.groupcoord.outbox import Outbox
from barnabas.groupcoord.partitions import group_partition
from barnabas.groupcoord.records import Record, group_record, offset_record
from barnabas.groupcoord.retention import expired
from barnabas.groupcoord.room import GROUP_BYTES, Room
from barnabas.groupcoord.shard import Offsets, Shard, Topic, TopicPartition, Topics
from barnabas.groupcoord.store import Store, told
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import OFFSETS_TOPIC
from barnabas.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from barnabas.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.wire.records.group_metadata import GroupMetadataValue
from barnabas.wire.records.offset_commit import OffsetCommitValue
from barnabas.wire.types import ZERO_UUID

log = logging.getLogger(__name__)

NO_OFFSET = -1
CLASSIC = "classic"
GROUP_ERRORS_SINCE = 2  # OffsetFetch: before, errors stand at the partitions


class GroupCoordinator:
    """All groups that this broker coordinates; one object per broker.

    `clock` gives monotonic seconds, `wall_ms` the time that records are stamped with, `new_suffix` the unique part of a
    member id. Replies are called exactly once each, when the answer is known; they must not block.
    """

    def __init__(
        self,
        config: GroupConfig,
        store: Store,
        clock: Callable[[], float],
        *,
        topics: Topics,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        new_suffix: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._wall_ms = wall_ms
        self._deadlines = Deadlines(clock)
        self._outbox = Outbox()
        self.room = Room(config.most_bytes)
        self._around = Surroundings(
            config, self._deadlines, self._outbox, self._write_group, self.room, wall_ms, new_suffix
        )
        self._shards: dict[int, Shard] = {}
        self._groups: dict[str, ClassicGroup] = {}  # of all loaded shards
        self._retention = self._deadlines.new(self._on_retention_check)
        self._retention.set(clock() + config.offsets_retention_check_interval_ms / 1000)

    # --- time ---------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """When, on the clock, `advance` should be called. It may come earlier than anything is due, never later."""
        return self._deadlines.next()

    def advance(self) -> None:
        """Do what is due: expire sessions, end barriers, expire offsets."""
        with self._outbox:
            self._deadlines.fire_due()

    def on_earlier_deadline(self, call: Callable[[], None] | None) -> None:
        """`call` is called whenever `next_deadline` has become earlier."""
        self._deadlines.on_earlier = call

    # --- ownership ----------------------------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group belongs to: what FindCoordinator looks up.

        The topic's own count decides: the configured one is only what a new topic would get.
        """
        topic = self._topics.by_name(OFFSETS_TOPIC)
        count = self._config.offsets_topic_num_partitions if topic is None else topic.partitions
        return group_partition(group_id, count)

    def begin_load(self, partition: int) -> Shard:
        """This broker has become the owner; until `finish_load` its groups answer COORDINATOR_LOAD_IN_PROGRESS.

        What is returned names this loading to `finish_load`.
        """
        self.unload(partition)
        shard = self._shards[partition] = Shard(partition)
        return shard

    def abandon_load(self, loading: Shard) -> None:
        """It could not be read: the partition counts as not owned."""
        if self._shards.get(loading.partition) is loading:
            self.unload(loading.partition)

    def finish_load(self, loading: Shard, image: PartitionImage) -> None:
        """The log has been read to its end. Nothing happens if the partition was unloaded meanwhile."""
        shard = loading
        if self._shards.get(shard.partition) is not shard or shard.is_loaded:
            return
        for (group_id, topic, index), offset in image.offsets.items():
            shard.offsets_of(group_id).committed[topic, index] = offset
        shard.open_transactions = image.open_transactions
        for written in image.open_transactions.values():
            for group_id, topic, index in written:
                shard.offsets_of(group_id).unstable[topic, index] += 1
        shard.is_loaded = True
        with self._outbox:
            for group_id in dict.fromkeys([*image.groups, *shard.offsets]):
                group = self._create_group(shard, group_id)
                if group_id in image.groups:
                    group.restore(image.groups[group_id])
            self._forget_stale(shard)
        level = logging.INFO if shard.groups or image.offsets else logging.DEBUG  # most partitions hold nothing
        log.log(
            level, "partition %d loaded: %d groups, %d offsets", shard.partition, len(shard.groups), len(image.offsets)
        )

    def _forget_stale(self, shard: Shard) -> None:
        """Offsets of topics that were deleted and made again since, and whose tombstones a crash has taken."""
        stale: dict[str, list[tuple[TopicPartition, None]]] = {}
        known: dict[str, Topic | None] = {}
        for group_id, offsets in shard.offsets.items():
            for where, offset in offsets.committed.items():
                if where[0] not in known:
                    known[where[0]] = self._topics.by_name(where[0])
                now = known[where[0]]
                if now is not None and not _is_of(offset, now.topic_id, now.since_ms):
                    stale.setdefault(group_id, []).append((where, None))
        if stale:
            log.info("partition %d: forgetting offsets of deleted topics in %d groups", shard.partition, len(stale))
            self._change_offsets(shard, stale, lambda error: None)

    def unload(self, partition: int) -> None:
        """This broker no longer owns the partition. Waiting members are sent away with NOT_COORDINATOR."""
        shard = self._shards.pop(partition, None)
        if shard is None:
            return
        with self._outbox:
            for group_id, group in shard.groups.items():
                group.shut_down(ErrorCode.NOT_COORDINATOR)
                del self._groups[group_id]

    # --- membership ---------------------------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, *, version: int, client_id: str, client_host: str, reply: JoinReply
    ) -> None:
        """JoinGroup. The reply is called at once for a refusal, else when the generation begins."""
        with self._outbox:
            try:
                group = self._group_to_join(request)
                group.join(request, version=version, client_id=client_id, client_host=client_host, reply=reply)
            except KafkaError as refusal:
                keeps_id = refusal.code is not ErrorCode.GROUP_MAX_SIZE_REACHED
                member_id = request.member_id if keeps_id else ""
                self._outbox.put(reply, JoinGroupResponse(error_code=refusal.code, member_id=member_id))

    def sync(self, request: SyncGroupRequest, *, version: int, reply: SyncReply) -> None:
        """SyncGroup. The reply is called when the assignment is durable, or at once for a refusal."""
        with self._outbox:
            try:
                self._member_group(request.group_id).sync(request, version=version, reply=reply)
            except KafkaError as refusal:
                self._outbox.put(reply, SyncGroupResponse(error_code=refusal.code))

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Heartbeat: a dictionary look-up and a deadline moved."""
        try:
            group = self._groups.get(request.group_id) or self._member_group(request.group_id)
            return _HEARTBEATS[group.heartbeat(request)]
        except KafkaError as refusal:
            if refusal.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return _HEARTBEATS[ErrorCode.NONE]
            return HeartbeatResponse(error_code=refusal.code)

    def leave(self, request: LeaveGroupRequest, version: int) -> LeaveGroupResponse:
        """LeaveGroup, of one member up to version 2, of many from version 3."""
        one = version < 3
        leaving = [MemberIdentity(member_id=request.member_id)] if one else request.members
        with self._outbox:
            try:
                results = self._member_group(request.group_id).leave(leaving)
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

    # --- offsets ------------------------------------------------------------------------------------------------------

    def commit(
        self, request: OffsetCommitRequest, *, version: int, reply: Callable[[OffsetCommitResponse], None]
    ) -> None:
        """OffsetCommit. Partitions that cannot be committed are refused one by one; the others become durable together.

        The reply is called when they are.
        """
        with self._outbox:
            by_id = version >= 10
            refusal, shard = ErrorCode.NONE, None
            try:
                shard = self._check_commit(request, version)
            except KafkaError as error:
                refusal = error.code
            retention_ms = request.retention_time_ms
            now_ms = self._wall_ms()
            accepted: list[tuple[TopicPartition, OffsetCommitValue]] = []
            verdicts: list[list[ErrorCode]] = []
            for topic in request.topics:
                now = self._topics.by_id(topic.topic_id) if by_id else self._topics.by_name(topic.name)
                codes = [self._judge_commit(now, partition, by_id) or refusal for partition in topic.partitions]
                verdicts.append(codes)
                accepted += [
                    (
                        (now.name, partition.partition_index),
                        OffsetCommitValue(
                            offset=partition.committed_offset,
                            leader_epoch=partition.committed_leader_epoch,
                            metadata=partition.committed_metadata or "",
                            commit_timestamp=now_ms,
                            expire_timestamp=-1 if retention_ms < 0 else now_ms + retention_ms,
                            topic_id=now.topic_id,
                        ),
                    )
                    for partition, code in zip(topic.partitions, codes, strict=True)
                    if now is not None and not code
                ]
            if shard is None or not accepted:
                self._outbox.put(reply, _commit_response(request, verdicts, ErrorCode.NONE))
                return

            def durable(error: ErrorCode) -> None:
                self._outbox.put(reply, _commit_response(request, verdicts, error))

            self._change_offsets(shard, {request.group_id: accepted}, durable)

    def fetch_offsets(self, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        """OffsetFetch, in the form of one group (up to version 7) or of many (from version 8)."""
        if version >= 8:
            asked_once = {group.group_id: group for group in request.groups}.values()
            groups = [self._fetch_group(group, version, request.require_stable) for group in asked_once]
            return OffsetFetchResponse(groups=groups)
        wanted = None
        if request.topics is not None:
            wanted = [
                OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
                for topic in request.topics
            ]
        asked = OffsetFetchRequestGroup(group_id=request.group_id, topics=wanted)
        group = self._fetch_group(asked, version, request.require_stable)
        return OffsetFetchResponse(
            error_code=group.error_code,
            topics=[
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=partition.partition_index,
                            committed_offset=partition.committed_offset,
                            committed_leader_epoch=partition.committed_leader_epoch,
                            metadata=partition.metadata,
                            error_code=partition.error_code,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in group.topics
            ],
        )

    def delete_offsets(self, request: OffsetDeleteRequest, *, reply: Callable[[OffsetDeleteResponse], None]) -> None:
        """OffsetDelete: forget offsets of topics that no member consumes. The reply is called when that is durable."""
        with self._outbox:
            try:
                shard = self._shard(request.group_id)
                group = shard.groups.get(request.group_id)
                if group is None:
                    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"no group {request.group_id}")
                if group.state is not State.EMPTY and not group.is_consumer_group:
                    raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "what its members use cannot be known")
            except KafkaError as refusal:
                self._outbox.put(reply, OffsetDeleteResponse(error_code=refusal.code))
                return
            topics: list[OffsetDeleteResponseTopic] = []
            forgotten: list[tuple[TopicPartition, None]] = []
            known = set(shard.offsets_of(request.group_id).places())
            shard.tidy(request.group_id)
            for topic in request.topics:
                code = ErrorCode.NONE
                if self._topics.by_name(topic.name) is None:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif group.is_subscribed(topic.name):
                    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                places = [(topic.name, partition.partition_index) for partition in topic.partitions]
                forgotten += [(where, None) for where in places if not code and where in known]
                topics.append(
                    OffsetDeleteResponseTopic(
                        name=topic.name,
                        partitions=[
                            OffsetDeleteResponsePartition(partition_index=index, error_code=code) for _, index in places
                        ],
                    )
                )
            if not forgotten:
                self._outbox.put(reply, OffsetDeleteResponse(topics=topics))
                return

            def durable(error: ErrorCode) -> None:
                answer = OffsetDeleteResponse(error_code=told(error)) if error else OffsetDeleteResponse(topics=topics)
                self._outbox.put(reply, answer)

            self._change_offsets(shard, {request.group_id: forgotten}, durable)

    def topic_deleted(self, name: str, topic_id: bytes = ZERO_UUID) -> None:
        """Forget all offsets of a topic that is gone; with its id, only those of that topic, not of one named alike."""
        with self._outbox:
            for shard in self._shards.values():
                gone: dict[str, list[tuple[TopicPartition, None]]] = {}
                for group_id, offsets in shard.offsets.items():
                    forgotten = [
                        (where, None)
                        for where in offsets.places()
                        if where[0] == name and _is_of(offsets.committed.get(where), topic_id)
                    ]
                    if forgotten:
                        gone[group_id] = forgotten
                if gone:
                    self._change_offsets(shard, gone, lambda error: None)

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """The marker of a transaction that wrote offsets into this partition is durable."""
        shard = self._shards.get(partition)
        if shard is None:
            return
        for (group_id, topic, index), value in shard.open_transactions.pop(producer_id, {}).items():
            offsets = shard.offsets_of(group_id)
            offsets.settle([(topic, index)])
            if committed:
                offsets.apply((topic, index), value)
            shard.tidy(group_id)

    # --- administration -----------------------------------------------------------------------------------------------

    def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """ListGroups, filtered by state and type; names of both in any case."""
        if any(not shard.is_loaded for shard in self._shards.values()):
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        states = {state.strip().lower() for state in request.states_filter}
        types = {kind.strip().lower() for kind in request.types_filter}
        return ListGroupsResponse(
            groups=[
                ListedGroup(
                    group_id=group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=CLASSIC,
                )
                for group_id, group in self._groups.items()
                if (not states or group.state.value.lower() in states) and (not types or CLASSIC in types)
            ]
        )

    def describe(self, request: DescribeGroupsRequest, version: int) -> DescribeGroupsResponse:
        """DescribeGroups. Authorized operations are left at their default, for who knows them to fill in."""
        group_ids = dict.fromkeys(request.groups)  # each once: an answer can be large
        return DescribeGroupsResponse(groups=[self._describe_group(group_id, version) for group_id in group_ids])

    def delete_groups(self, request: DeleteGroupsRequest, *, reply: Callable[[DeleteGroupsResponse], None]) -> None:
        """DeleteGroups: groups without members, with their offsets. The reply is called when all are durably gone."""
        group_ids = list(dict.fromkeys(request.groups_names))
        results: dict[str, ErrorCode] = {}

        def one_done(group_id: str, error: ErrorCode) -> None:
            results[group_id] = error
            if len(results) == len(group_ids):
                listed = [DeletableGroupResult(group_id=each, error_code=results[each]) for each in group_ids]
                self._outbox.put(reply, DeleteGroupsResponse(results=listed))

        with self._outbox:
            if not group_ids:
                self._outbox.put(reply, DeleteGroupsResponse())
            for group_id in group_ids:
                try:
                    self._delete_group(group_id, one_done)
                except KafkaError as refusal:
                    one_done(group_id, refusal.code)

    # --- whose request is it ------------------------------------------------------------------------------------------

    def _shard(self, group_id: str) -> Shard:
        """The loaded shard of a group. Raises KafkaError if it is not here or not yet."""
        shard = self._shards.get(self.partition_of(group_id))
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{group_id} is coordinated elsewhere")
        if not shard.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"partition {shard.partition} is being read")
        return shard

    def _member_group(self, group_id: str) -> ClassicGroup:
        """The group that a member's request is for; a group that is not there has no members."""
        group = self._groups.get(group_id)
        if group is None:
            if not group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
            self._shard(group_id)
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no group {group_id}")
        return group

    def _group_to_join(self, request: JoinGroupRequest) -> ClassicGroup:
        """The group to join; who brings no member id creates it."""
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        config = self._config
        shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT, f"not between {shortest} and {longest} ms")
        group = self._groups.get(request.group_id)
        if group is None and not request.member_id:
            if not (request.protocol_type and request.protocols):
                self._shard(request.group_id)
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "protocol type or protocols are missing")
            shard = self._shard(request.group_id)
            self.room.check(GROUP_BYTES + len(request.group_id))
            group = self._create_group(shard, request.group_id)
        return group or self._member_group(request.group_id)

    def _create_group(self, shard: Shard, group_id: str) -> ClassicGroup:
        group = ClassicGroup(group_id, self._around)
        shard.groups[group_id] = self._groups[group_id] = group
        return group

    # --- what is written ----------------------------------------------------------------------------------------------

    def _append(self, shard: Shard, records: list[Record], done: Callable[[ErrorCode], None]) -> None:
        """Append; `done` runs in a turn, and hears of a failure if the shard has gone meanwhile."""

        def durable(error: ErrorCode) -> None:
            with self._outbox:
                is_gone = self._shards.get(shard.partition) is not shard
                done(ErrorCode.NOT_LEADER_OR_FOLLOWER if is_gone else error)

        self._store.append(shard.partition, records, durable)

    def _write_group(self, group_id: str, value: GroupMetadataValue, done: Callable[[ErrorCode], None]) -> None:
        self._append(self._shard(group_id), [group_record(group_id, value)], done)

    def _change_offsets(
        self,
        shard: Shard,
        changes: Mapping[str, Sequence[tuple[TopicPartition, OffsetCommitValue | None]]],
        done: Callable[[ErrorCode], None],
        *,
        also: Sequence[Record] = (),
    ) -> None:
        """Append what changes, by group, and apply it when it is durable."""
        records = [
            offset_record(group_id, topic, index, value)
            for group_id, changed in changes.items()
            for (topic, index), value in changed
        ]
        for group_id, changed in changes.items():
            shard.offsets_of(group_id).take_off([where for where, _ in changed])

        def durable(error: ErrorCode) -> None:
            for group_id, changed in changes.items():
                offsets = shard.offsets_of(group_id)
                offsets.land([where for where, _ in changed])
                for where, value in changed if not error else ():
                    offsets.apply(where, value)
                shard.tidy(group_id)
                if group_id in shard.offsets and group_id not in shard.groups and self._is_current(shard):
                    self._create_group(shard, group_id)  # a "simple" group: it has offsets and never had members
            done(error)

        self._append(shard, [*records, *also], durable)

    def _is_current(self, shard: Shard) -> bool:
        return self._shards.get(shard.partition) is shard

    # --- details of offsets -------------------------------------------------------------------------------------------

    def _check_commit(self, request: OffsetCommitRequest, version: int) -> Shard:
        """Raises KafkaError if this sender may not commit for the group."""
        shard = self._shard(request.group_id)
        group = shard.groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is not None:
            group.check_commit(request.member_id, request.group_instance_id, generation)
        elif generation >= 0:
            code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
            raise KafkaError(code, f"no group {request.group_id}")
        return shard

    def _judge_commit(self, now: Topic | None, partition: OffsetCommitRequestPartition, by_id: bool) -> ErrorCode:
        if now is None:
            return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not 0 <= partition.partition_index < now.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(partition.committed_metadata or "") > self._config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def _fetch_group(self, asked: OffsetFetchRequestGroup, version: int, stable: bool) -> OffsetFetchResponseGroup:
        by_id = version >= 10
        try:
            offsets = self._shard(asked.group_id).offsets.get(asked.group_id) or _NOTHING
        except KafkaError as refusal:
            if version >= GROUP_ERRORS_SINCE:
                return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=refusal.code)
            topics = [_no_offsets(topic, refusal.code) for topic in asked.topics or ()]
            return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)
        if asked.topics is None:
            by_topic: dict[str, list[int]] = {}
            for topic, index in offsets.committed:
                by_topic.setdefault(topic, []).append(index)
            wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=of) for topic, of in by_topic.items()]
        else:
            wanted = asked.topics
        found: list[OffsetFetchResponseTopics] = []
        for each in wanted:
            has_id = by_id and asked.topics is not None
            now = self._topics.by_id(each.topic_id) if has_id else self._topics.by_name(each.name)
            if now is None and has_id:
                found.append(_no_offsets(each, ErrorCode.UNKNOWN_TOPIC_ID))
            elif now is not None or not by_id:
                now = now or Topic(each.name, ZERO_UUID, 0)
                name, topic_id = now.name, now.topic_id
                partitions = [_position(offsets, index, now, stable) for index in each.partition_indexes]
                found.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions))
        return OffsetFetchResponseGroup(group_id=asked.group_id, topics=found)

    def _on_retention_check(self) -> None:
        self._retention.set(self._deadlines.clock() + self._config.offsets_retention_check_interval_ms / 1000)
        now_ms = self._wall_ms()
        for group in list(self._groups.values()):
            shard = self._shard(group.group_id)
            offsets = shard.offsets.get(group.group_id) or _NOTHING
            old = expired(group, offsets, now_ms, self._config.offsets_retention_ms)
            nothing_left = len(old) == len(offsets.committed) and not offsets.in_flight and not offsets.unstable
            if group.is_idle and nothing_left:
                self._forget_group(shard, group, old)
            elif old:
                log.info("group %s: %d offsets expired", group.group_id, len(old))
                self._change_offsets(shard, {group.group_id: [(where, None) for where in old]}, lambda error: None)

    # --- details of groups --------------------------------------------------------------------------------------------

    def _delete_group(self, group_id: str, done: Callable[[str, ErrorCode], None]) -> None:
        shard = self._shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"no group {group_id}")
        if group.state is not State.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{len(group.members)} members")
        offsets = shard.offsets.get(group_id) or _NOTHING
        self._forget_group(shard, group, offsets.places(), lambda error: done(group_id, told(error)))

    def _forget_group(
        self,
        shard: Shard,
        group: ClassicGroup,
        places: list[TopicPartition],
        done: Callable[[ErrorCode], None] = lambda error: None,
    ) -> None:
        """Delete the group and the offsets at these places, unless somebody joins or commits meanwhile."""

        def durable(error: ErrorCode) -> None:
            is_left = shard.groups.get(group.group_id) is group and group.state is State.EMPTY
            if not error and is_left and group.group_id not in shard.offsets:
                del shard.groups[group.group_id], self._groups[group.group_id]
                group.shut_down(ErrorCode.UNKNOWN_MEMBER_ID)
            done(error)

        also = [group_record(group.group_id, None)] if group.may_be_in_log else []
        if not places and not also:
            durable(ErrorCode.NONE)
            return
        log.info("group %s: deleting it with %d offsets", group.group_id, len(places))
        self._change_offsets(shard, {group.group_id: [(where, None) for where in places]}, durable, also=also)

    def _describe_group(self, group_id: str, version: int) -> DescribedGroup:
        try:
            group = self._shard(group_id).groups.get(group_id)
        except KafkaError as refusal:
            message = refusal.message if version >= 6 else None
            return DescribedGroup(error_code=refusal.code, error_message=message, group_id=group_id)
        if group is None:
            is_error = version >= 6
            return DescribedGroup(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE,
                error_message=f"Group {group_id} not found." if is_error else None,
                group_id=group_id,
                group_state=State.DEAD.value,
            )
        is_stable = group.state is State.STABLE
        protocol = group.protocol if is_stable and group.protocol else ""
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
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
                for member in group.members.values()
            ],
        )


_HEARTBEATS = {code: HeartbeatResponse(error_code=code) for code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)}
_NOTHING = Offsets()  # of a group that has none; never changed


def _is_of(offset: OffsetCommitValue | None, topic_id: bytes, since_ms: int = -1) -> bool:
    """Whether a commit may be one of the topic with that id. Commits of old clients do not say it: then time tells."""
    if offset is None or topic_id == ZERO_UUID:
        return True
    return offset.commit_timestamp > since_ms if offset.topic_id == ZERO_UUID else offset.topic_id == topic_id


def _position(offsets: Offsets, index: int, now: Topic, require_stable: bool) -> OffsetFetchResponsePartitions:
    """The committed position; none if it was committed for an earlier topic of the same name."""
    where = now.name, index
    offset = offsets.committed.get(where)
    if require_stable and where in offsets.unstable:
        return _no_offset(where[1], ErrorCode.UNSTABLE_OFFSET_COMMIT)
    if offset is None or not _is_of(offset, now.topic_id, now.since_ms):
        return _no_offset(where[1], ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=where[1],
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def _no_offset(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, error_code=error)


def _no_offsets(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    partitions = [_no_offset(index, error) for index in topic.partition_indexes]
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _commit_response(
    request: OffsetCommitRequest, verdicts: list[list[ErrorCode]], stored: ErrorCode
) -> OffsetCommitResponse:
    """What was refused keeps its reason, the rest shares the fate of the append."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code or told(stored))
                    for each, code in zip(topic.partitions, codes, strict=True)
                ],
            )
            for topic, codes in zip(request.topics, verdicts, strict=True)
        ]
    )
