"""Produce (API key 0): append record batches to partitions."""

from typing import Annotated

from barnabas.wire.types import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    String,
    Struct,
    Tag,
    Uuid,
    ignorable,
    message,
    v,
)


class PartitionProduceData(Struct):
    index: Int32 = 0
    records: Records | None = None


class TopicProduceData(Struct):
    name: Annotated[String, v[:12], ignorable] = ""
    topic_id: Annotated[Uuid, v[13], ignorable] = ZERO_UUID
    partition_data: list[PartitionProduceData] = []


@message(key=0, versions=v[3:13], flexible=v[9:])
class ProduceRequest(Message):
    transactional_id: String | None = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = 0
    batch_index_error_message: String | None = None


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Struct):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, v[5:], ignorable] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], v[8:], ignorable] = []
    error_message: Annotated[String | None, v[8:], ignorable] = None
    current_leader: Annotated[LeaderIdAndEpoch, v[10:], Tag(0)] = LeaderIdAndEpoch()


class TopicProduceResponse(Struct):
    name: Annotated[String, v[:12], ignorable] = ""
    topic_id: Annotated[Uuid, v[13], ignorable] = ZERO_UUID
    partition_responses: list[PartitionProduceResponse] = []


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


@message(key=0, versions=v[3:13], flexible=v[9:])
class ProduceResponse(Message):
    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[list[NodeEndpoint], v[10:], Tag(0)] = []
