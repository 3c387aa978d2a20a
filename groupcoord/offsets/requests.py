"""Requests about offsets of groups of any type: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete.

The group decides which client may commit or delete. Refused partitions keep their own reasons; the others share the
result of the append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.groupcoord.group import Group, Surroundings
from barnabas.groupcoord.log.shard import Shard, Shards
from barnabas.groupcoord.log.store import ProducerEpoch, told
from barnabas.groupcoord.offsets.committed import NO_OFFSETS, OffsetManager, Offsets, is_of
from barnabas.groupcoord.offsets.elsewhere import Change, Done, Elsewhere
from barnabas.groupcoord.topics import Topic, Topics
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode, KafkaError
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
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.wire.records.offset_commit import OffsetCommitValue
from barnabas.wire.streams.keys import is_stream
from barnabas.wire.types import ZERO_UUID

#: From a group's offsets in the log to those to answer. Raises KafkaError if they are currently unknown.
Overlay = Callable[[str, Offsets], Offsets]
_NO_OFFSET = -1
_COMMIT_BY_ID_SINCE = _FETCH_BY_ID_SINCE = 10  # topics by id instead of name
_MANY_GROUPS_SINCE = 8  # OffsetFetch
_GROUP_ERRORS_SINCE = 2  # OffsetFetch: in earlier versions, each partition has the error
_LOADING_SINCE = 2  # TxnOffsetCommit: earlier versions get COORDINATOR_NOT_AVAILABLE
_UNKNOWN_GROUP_SINCE = 9  # OffsetCommit: earlier versions see a missing group as an illegal generation


class OffsetRequests:
    """Each reply is called exactly once, when the request is durable or refused."""

    def __init__(self, shards: Shards, offsets: OffsetManager, topics: Topics, around: Surroundings) -> None:
        self._shards = shards
        self._offsets = offsets
        self._topics = topics
        self._config = around.config
        self._outbox = around.outbox
        self._wall_ms = around.wall_ms

    # --- OffsetCommit -------------------------------------------------------------------------------------------------

    def commit(
        self, request: OffsetCommitRequest, *, version: int, reply: Callable[[OffsetCommitResponse], None]
    ) -> None:
        """OffsetCommit. Partitions that cannot be committed are refused one by one; the others become durable together.

        The reply is called when they are durable.
        """
        with self._outbox:
            by_id = version >= _COMMIT_BY_ID_SINCE
            refusal, shard = ErrorCode.NONE, None
            try:
                shard = self._check_commit(request, version)
            except KafkaError as error:
                refusal = error.code
            now_ms, retention_ms = self._wall_ms(), request.retention_time_ms
            accepted: list[Change] = []
            verdicts: list[list[ErrorCode]] = []
            for topic in request.topics:
                now = self._topics.by_id(topic.topic_id) if by_id else self._topics.by_name(topic.name)
                codes = [self._judge_commit(now, partition, by_id) or refusal for partition in topic.partitions]
                verdicts.append(codes)
                accepted += [
                    (
                        (now.name, partition.partition_index),
                        _commit_value(retention_ms, partition, now, now_ms),
                    )
                    for partition, code in zip(topic.partitions, codes, strict=True)
                    if now is not None and not code
                ]
            if shard is None or not accepted:
                self._outbox.put(reply, _commit_response(request, verdicts, ErrorCode.NONE))
                return

            def durable(error: ErrorCode) -> None:
                self._outbox.put(reply, _commit_response(request, verdicts, error))

            elsewhere = self._offsets.elsewhere
            if elsewhere is None:
                self._offsets.change(shard, {request.group_id: accepted}, durable)
            else:
                self._commit_elsewhere(elsewhere, shard, request.group_id, accepted, durable)

    def _commit_elsewhere(
        self, elsewhere: Elsewhere, shard: Shard, group_id: str, accepted: list[Change], done: Done
    ) -> None:
        """Commit to the log and then to the second store, whose errors the client does not see; or only there."""
        if elsewhere.alone:
            self._store_elsewhere(elsewhere, shard, group_id, accepted, done)
            return

        def durable(error: ErrorCode) -> None:
            if error:
                done(error)
            else:
                elsewhere.after(group_id, accepted, lambda: done(ErrorCode.NONE))

        self._offsets.change(shard, {group_id: accepted}, durable)

    def _store_elsewhere(
        self, elsewhere: Elsewhere, shard: Shard, group_id: str, accepted: list[Change], done: Done
    ) -> None:
        """Commit only to the second store. The log's offsets are then outdated, and must not count later on."""

        def stored(error: ErrorCode) -> None:
            offsets = shard.offsets.get(group_id) or NO_OFFSETS
            old: list[Change] = [(where, None) for where, _ in accepted if where in offsets.committed]
            if error or not old:
                done(error)
            else:
                self._offsets.change(shard, {group_id: old}, done, tell=False)

        elsewhere.store(group_id, accepted, stored)

    def _check_commit(self, request: OffsetCommitRequest, version: int) -> Shard:
        """Raises KafkaError if this sender may not commit for the group."""
        shard = self._shards.of(request.group_id)
        group = shard.groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is not None:
            group.check_commit(request.member_id, request.group_instance_id, generation)
        elif generation >= 0:
            is_known = version >= _UNKNOWN_GROUP_SINCE
            code = ErrorCode.GROUP_ID_NOT_FOUND if is_known else ErrorCode.ILLEGAL_GENERATION
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

    # --- TxnOffsetCommit ----------------------------------------------------------------------------------------------

    def commit_in_transaction(
        self,
        request: TxnOffsetCommitRequest,
        *,
        version: int,
        refusal: ErrorCode,
        reply: Callable[[TxnOffsetCommitResponse], None],
    ) -> None:
        """TxnOffsetCommit: commit offsets that count when the producer's transaction is committed.

        `refusal` is the transaction coordinator's error for the producer. The reply is called when the offsets are
        durable.
        """
        with self._outbox:
            shard = None
            try:
                if refusal:
                    raise KafkaError(refusal)
                shard = self._check_txn_commit(request)
            except KafkaError as error:
                refusal = error.code
            now_ms = self._wall_ms()
            accepted: list[Change] = []
            verdicts: list[list[ErrorCode]] = []
            for topic in request.topics:
                now = self._topics.by_name(topic.name)
                parts = [_as_plain(each) for each in topic.partitions]
                codes = [self._judge_commit(now, each, False) or refusal for each in parts]
                verdicts.append(codes)
                accepted += [
                    ((now.name, each.partition_index), _commit_value(-1, each, now, now_ms))
                    for each, code in zip(parts, codes, strict=True)
                    if now is not None and not code
                ]
            if shard is None or not accepted:
                self._outbox.put(reply, _txn_commit_response(request, verdicts, ErrorCode.NONE, version))
                return

            def durable(error: ErrorCode) -> None:
                self._outbox.put(reply, _txn_commit_response(request, verdicts, error, version))

            producer = ProducerEpoch(request.producer_id, request.producer_epoch)
            self._offsets.change_in_transaction(shard, request.group_id, accepted, producer, durable)

    def _check_txn_commit(self, request: TxnOffsetCommitRequest) -> Shard:
        """Raises KafkaError if this sender may not commit for the group. Up to version 2 requests name no member."""
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "no group")
        elsewhere = self._offsets.elsewhere
        if elsewhere is not None and elsewhere.alone and not is_stream(request.group_id):
            raise KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "transactions need offsets.storage=kafka")
        shard = self._shards.of(request.group_id)
        group = shard.groups.get(request.group_id)
        if group is not None:
            group.check_commit(request.member_id, request.group_instance_id, request.generation_id, in_transaction=True)
        elif request.generation_id >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"no group {request.group_id}")
        return shard

    # --- OffsetFetch --------------------------------------------------------------------------------------------------

    def fetch(self, request: OffsetFetchRequest, version: int, overlay: Overlay | None = None) -> OffsetFetchResponse:
        """OffsetFetch, for one group (up to version 7) or many (from version 8).

        `overlay` adds the second store's positions to a group's offsets.
        """
        if version >= _MANY_GROUPS_SINCE:
            asked_once = {group.group_id: group for group in request.groups}.values()
            groups = [self._fetch_group(group, version, request.require_stable, overlay) for group in asked_once]
            return OffsetFetchResponse(groups=groups)
        group = self._fetch_group(_only_group(request), version, request.require_stable, overlay)
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

    def asked(self, request: OffsetFetchRequest, version: int) -> dict[str, list[TopicPartition] | None]:
        """The existing partitions for which an OffsetFetch asks, by group; None stands for all."""
        asked = request.groups if version >= _MANY_GROUPS_SINCE else [_only_group(request)]
        return {group.group_id: None if group.topics is None else self._places(group, version) for group in asked}

    def _places(self, group: OffsetFetchRequestGroup, version: int) -> list[TopicPartition]:
        by_id = version >= _FETCH_BY_ID_SINCE
        places: dict[TopicPartition, None] = {}
        for each in group.topics or ():
            now = self._topics.by_id(each.topic_id) if by_id else self._topics.by_name(each.name)
            for index in each.partition_indexes if now is not None else ():
                if now is not None and 0 <= index < now.partitions:
                    places[now.name, index] = None
        return list(places)

    def _fetch_group(
        self, asked: OffsetFetchRequestGroup, version: int, stable: bool, overlay: Overlay | None
    ) -> OffsetFetchResponseGroup:
        by_id = version >= _FETCH_BY_ID_SINCE
        try:
            offsets = self._shards.of(asked.group_id).offsets.get(asked.group_id) or NO_OFFSETS
            if overlay is not None:
                offsets = overlay(asked.group_id, offsets)
        except KafkaError as refusal:
            if version >= _GROUP_ERRORS_SINCE:
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

    # --- OffsetDelete -------------------------------------------------------------------------------------------------

    def delete(self, request: OffsetDeleteRequest, *, reply: Callable[[OffsetDeleteResponse], None]) -> None:
        """OffsetDelete: delete offsets of topics that no member consumes. The reply is called when that is durable."""
        with self._outbox:
            try:
                shard, group = self._group_to_delete_of(request.group_id)
            except KafkaError as refusal:
                self._outbox.put(reply, OffsetDeleteResponse(error_code=refusal.code))
                return
            topics: list[OffsetDeleteResponseTopic] = []
            forgotten: list[Change] = []
            known = set((shard.offsets.get(request.group_id) or NO_OFFSETS).places())
            for topic in request.topics:
                code = self._judge_delete(group, topic.name)
                places = [(topic.name, partition.partition_index) for partition in topic.partitions]
                forgotten += [(where, None) for where in places if not code and where in known]
                partitions = [OffsetDeleteResponsePartition(partition_index=at, error_code=code) for _, at in places]
                topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
            if not forgotten:
                self._outbox.put(reply, OffsetDeleteResponse(topics=topics))
                return

            def durable(error: ErrorCode) -> None:
                answer = OffsetDeleteResponse(error_code=told(error)) if error else OffsetDeleteResponse(topics=topics)
                self._outbox.put(reply, answer)

            self._offsets.change(shard, {request.group_id: forgotten}, durable)

    def deletable_topics(self, group_id: str, names: Iterable[str]) -> set[str]:
        """The topics whose offsets OffsetDelete would delete. The group may exist in the second store only."""
        group = self._shards.of(group_id).groups.get(group_id)
        if group is None:
            return {name for name in names if self._topics.by_name(name) is not None}
        group.check_offset_delete()
        return {name for name in names if not self._judge_delete(group, name)}

    def _group_to_delete_of(self, group_id: str) -> tuple[Shard, Group]:
        shard = self._shards.of(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"no group {group_id}")
        group.check_offset_delete()
        return shard, group

    def _judge_delete(self, group: Group, topic: str) -> ErrorCode:
        if self._topics.by_name(topic) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed(topic) else ErrorCode.NONE


def _commit_value(
    retention_ms: int, partition: OffsetCommitRequestPartition, topic: Topic, now_ms: int
) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=-1 if retention_ms < 0 else now_ms + retention_ms,
        topic_id=topic.topic_id,
    )


def _position(offsets: Offsets, index: int, now: Topic, require_stable: bool) -> OffsetFetchResponsePartitions:
    """The committed position; none if it was committed for an earlier topic with the same name."""
    where = now.name, index
    offset = offsets.committed.get(where)
    if require_stable and where in offsets.pending_transactional:
        return _no_offset(where[1], ErrorCode.UNSTABLE_OFFSET_COMMIT)
    if where in offsets.unreadable:
        return _no_offset(where[1], ErrorCode.UNKNOWN_SERVER_ERROR)
    if offset is None or not is_of(offset, now.topic_id, now.since_ms):
        return _no_offset(where[1], ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=where[1],
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """The group of a request up to version 7, in the form of later versions."""
    wanted = None
    if request.topics is not None:
        wanted = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=wanted)


def _no_offset(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(partition_index=index, committed_offset=_NO_OFFSET, error_code=error)


def _no_offsets(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    partitions = [_no_offset(index, error) for index in topic.partition_indexes]
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _commit_response(
    request: OffsetCommitRequest, verdicts: list[list[ErrorCode]], stored: ErrorCode
) -> OffsetCommitResponse:
    """The response: refused partitions keep their reasons, the others share the result of the append."""
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


def _as_plain(partition: TxnOffsetCommitRequestPartition) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        committed_metadata=partition.committed_metadata,
    )


def _txn_commit_response(
    request: TxnOffsetCommitRequest, verdicts: list[list[ErrorCode]], stored: ErrorCode, version: int
) -> TxnOffsetCommitResponse:
    """Like `_commit_response`. Producers of the first versions do not know the loading error (KAFKA-7296)."""

    def shown(code: ErrorCode) -> ErrorCode:
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_SINCE:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return code

    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=shown(code or told(stored))
                    )
                    for each, code in zip(topic.partitions, codes, strict=True)
                ],
            )
            for topic, codes in zip(request.topics, verdicts, strict=True)
        ]
    )
