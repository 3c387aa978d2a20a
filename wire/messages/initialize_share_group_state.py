"""InitializeShareGroupState (API key 83): create a share partition's state (KIP-932)."""

from barnabas.wire.types import ZERO_UUID, Int16, Int32, Int64, Message, String, Struct, Uuid, message, v


class PartitionData(Struct):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    start_offset: Int64 = 0


class InitializeStateData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


@message(key=83, versions=v[0], flexible=v[0:])
class InitializeShareGroupStateRequest(Message):
    group_id: String = ""
    topics: list[InitializeStateData] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class InitializeStateResult(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


@message(key=83, versions=v[0], flexible=v[0:])
class InitializeShareGroupStateResponse(Message):
    results: list[InitializeStateResult] = []
