"""Committed offsets in `__consumer_offsets`: one record per group, topic and partition."""

from typing import Annotated

from barnabas.wire.types import ZERO_UUID, Int32, Int64, Message, String, Tag, Uuid, ignorable, message, v


@message(key=1, versions=v[0])
class OffsetCommitKey(Message):
    group: String = ""
    topic: String = ""
    partition: Int32 = 0


@message(key=1, versions=v[0:4], flexible=v[4:])
class OffsetCommitValue(Message):
    offset: Int64 = 0
    leader_epoch: Annotated[Int32, v[3:], ignorable] = -1
    metadata: String = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Annotated[Int64, v[1], ignorable] = -1
    topic_id: Annotated[Uuid, v[4], Tag(0), ignorable] = ZERO_UUID
