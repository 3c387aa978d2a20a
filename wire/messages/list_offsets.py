"""ListOffsets (API key 2): find offsets by timestamp or by special value."""

from typing import Annotated

from barnabas.wire.types import Int8, Int16, Int32, Int64, Message, String, Struct, ignorable, message, v


class ListOffsetsPartition(Struct):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, v[4:], ignorable] = -1
    timestamp: Int64 = 0


class ListOffsetsTopic(Struct):
    name: String = ""
    partitions: list[ListOffsetsPartition] = []


@message(key=2, versions=v[1:11], flexible=v[6:])
class ListOffsetsRequest(Message):
    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, v[2:]] = 0
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Annotated[Int32, v[10:], ignorable] = 0


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, v[4:]] = -1


class ListOffsetsTopicResponse(Struct):
    name: String = ""
    partitions: list[ListOffsetsPartitionResponse] = []


@message(key=2, versions=v[1:11], flexible=v[6:])
class ListOffsetsResponse(Message):
    throttle_time_ms: Annotated[Int32, v[2:], ignorable] = 0
    topics: list[ListOffsetsTopicResponse] = []
