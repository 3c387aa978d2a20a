"""OffsetFetch (API key 9): read a group's stored positions."""

from typing import Annotated

from barnabas.wire.types import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    Nullable,
    String,
    Struct,
    Uuid,
    ignorable,
    message,
    v,
)


class OffsetFetchRequestTopic(Struct):
    name: String = ""
    partition_indexes: list[Int32] = []


class OffsetFetchRequestTopics(Struct):
    name: Annotated[String, v[:9], ignorable] = ""
    topic_id: Annotated[Uuid, v[10], ignorable] = ZERO_UUID
    partition_indexes: list[Int32] = []


class OffsetFetchRequestGroup(Struct):
    group_id: String = ""
    member_id: Annotated[String | None, v[9:], ignorable] = None
    member_epoch: Annotated[Int32, v[9:], ignorable] = -1
    topics: list[OffsetFetchRequestTopics] | None = []


@message(key=9, versions=v[1:10], flexible=v[6:])
class OffsetFetchRequest(Message):
    group_id: Annotated[String, v[:7]] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, v[:7], Nullable(v[2:])] = []
    groups: Annotated[list[OffsetFetchRequestGroup], v[8:]] = []
    require_stable: Annotated[Bool, v[7:]] = False


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, v[5:], ignorable] = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Struct):
    name: String = ""
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Struct):
    name: Annotated[String, v[:9], ignorable] = ""
    topic_id: Annotated[Uuid, v[10], ignorable] = ZERO_UUID
    partitions: list[OffsetFetchResponsePartitions] = []


class OffsetFetchResponseGroup(Struct):
    group_id: String = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: Int16 = 0


@message(key=9, versions=v[1:10], flexible=v[6:])
class OffsetFetchResponse(Message):
    throttle_time_ms: Annotated[Int32, v[3:], ignorable] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], v[:7]] = []
    error_code: Annotated[Int16, v[2:7], ignorable] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], v[8:]] = []
