"""DescribeQuorum (API key 55): state of the metadata quorum (KIP-595)."""

from typing import Annotated

from barnabas.wire.types import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    UInt16,
    Uuid,
    ignorable,
    message,
    v,
)


class PartitionData(Struct):
    partition_index: Int32 = 0


class TopicData(Struct):
    topic_name: String = ""
    partitions: list[PartitionData] = []


@message(key=55, versions=v[0:2], flexible=v[0:])
class DescribeQuorumRequest(Message):
    topics: list[TopicData] = []


class ReplicaState(Struct):
    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, v[2]] = ZERO_UUID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, v[1:], ignorable] = -1
    last_caught_up_timestamp: Annotated[Int64, v[1:], ignorable] = -1


class PartitionDataResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, v[2], ignorable] = ""
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState] = []
    observers: list[ReplicaState] = []


class TopicDataResponse(Struct):
    topic_name: String = ""
    partitions: list[PartitionDataResponse] = []


class Listener(Struct):
    name: String = ""
    host: String = ""
    port: UInt16 = 0


class Node(Struct):
    node_id: Int32 = 0
    listeners: list[Listener] = []


@message(key=55, versions=v[0:2], flexible=v[0:])
class DescribeQuorumResponse(Message):
    error_code: Int16 = 0
    error_message: Annotated[String | None, v[2], ignorable] = ""
    topics: list[TopicDataResponse] = []
    nodes: Annotated[list[Node], v[2]] = []
