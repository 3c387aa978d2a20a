"""OffsetCommit (API key 8): store a group's positions."""

from typing import Annotated

from barnabas.wire.types import ZERO_UUID, Int16, Int32, Int64, Message, String, Struct, Uuid, ignorable, message, v


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, v[6:], ignorable] = -1
    committed_metadata: String | None = ""


class OffsetCommitRequestTopic(Struct):
    name: Annotated[String, v[:9], ignorable] = ""
    topic_id: Annotated[Uuid, v[10], ignorable] = ZERO_UUID
    partitions: list[OffsetCommitRequestPartition] = []


@message(key=8, versions=v[2:10], flexible=v[8:])
class OffsetCommitRequest(Message):
    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, v[7:]] = None
    retention_time_ms: Annotated[Int64, v[:4], ignorable] = -1
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Struct):
    name: Annotated[String, v[:9], ignorable] = ""
    topic_id: Annotated[Uuid, v[10], ignorable] = ZERO_UUID
    partitions: list[OffsetCommitResponsePartition] = []


@message(key=8, versions=v[2:10], flexible=v[8:])
class OffsetCommitResponse(Message):
    throttle_time_ms: Annotated[Int32, v[3:], ignorable] = 0
    topics: list[OffsetCommitResponseTopic] = []
