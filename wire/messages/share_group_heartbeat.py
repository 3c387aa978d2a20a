"""ShareGroupHeartbeat (API key 76): membership of a share group (KIP-932)."""

from barnabas.wire.types import ZERO_UUID, Int16, Int32, Message, String, Struct, Uuid, message, v


@message(key=76, versions=v[1], flexible=v[0:])
class ShareGroupHeartbeatRequest(Message):
    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    rack_id: String | None = None
    subscribed_topic_names: list[String] | None = None


class TopicPartitions(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = []


@message(key=76, versions=v[1], flexible=v[0:])
class ShareGroupHeartbeatResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
