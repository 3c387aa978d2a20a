"""DeleteShareGroupOffsets (API key 92): forget start offsets of a share group (KIP-932)."""

from barnabas.wire.types import ZERO_UUID, Int16, Int32, Message, String, Struct, Uuid, message, v


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: String = ""


@message(key=92, versions=v[0], flexible=v[0:])
class DeleteShareGroupOffsetsRequest(Message):
    group_id: String = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = []


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: String = ""
    topic_id: Uuid = ZERO_UUID
    error_code: Int16 = 0
    error_message: String | None = None


@message(key=92, versions=v[0], flexible=v[0:])
class DeleteShareGroupOffsetsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []
