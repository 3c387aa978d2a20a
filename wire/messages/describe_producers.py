"""DescribeProducers (API key 61): active producers of partitions (KIP-664)."""

from barnabas.wire.types import Int16, Int32, Int64, Message, String, Struct, message, v


class TopicRequest(Struct):
    name: String = ""
    partition_indexes: list[Int32] = []


@message(key=61, versions=v[0], flexible=v[0:])
class DescribeProducersRequest(Message):
    topics: list[TopicRequest] = []


class ProducerState(Struct):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    active_producers: list[ProducerState] = []


class TopicResponse(Struct):
    name: String = ""
    partitions: list[PartitionResponse] = []


@message(key=61, versions=v[0], flexible=v[0:])
class DescribeProducersResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = []
