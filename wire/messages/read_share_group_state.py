"""ReadShareGroupState (API key 84): read a share partition's state (KIP-932)."""

from barnabas.wire.types import ZERO_UUID, Int8, Int16, Int32, Int64, Message, String, Struct, Uuid, message, v


class PartitionData(Struct):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


@message(key=84, versions=v[0], flexible=v[0:])
class ReadShareGroupStateRequest(Message):
    group_id: String = ""
    topics: list[ReadStateData] = []


class StateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    state_epoch: Int32 = 0
    start_offset: Int64 = 0
    state_batches: list[StateBatch] = []


class ReadStateResult(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


@message(key=84, versions=v[0], flexible=v[0:])
class ReadShareGroupStateResponse(Message):
    results: list[ReadStateResult] = []
