"""DeleteShareGroupState (API key 86): delete a share partition's state (KIP-932)."""

from barnabas.wire.types import ZERO_UUID, Int16, Int32, Message, String, Struct, Uuid, message, v


class PartitionData(Struct):
    partition: Int32 = 0


class DeleteStateData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


@message(key=86, versions=v[0], flexible=v[0:])
class DeleteShareGroupStateRequest(Message):
    group_id: String = ""
    topics: list[DeleteStateData] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class DeleteStateResult(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


@message(key=86, versions=v[0], flexible=v[0:])
class DeleteShareGroupStateResponse(Message):
    results: list[DeleteStateResult] = []
