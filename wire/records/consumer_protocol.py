"""The embedded protocol of consumer groups: what JoinGroup and SyncGroup carry as opaque bytes."""

from typing import Annotated

from barnabas.wire.types import Bytes, Int32, Message, String, Struct, ignorable, message, v


class TopicPartition(Struct):
    topic: String = ""
    partitions: list[Int32] = []


@message(versions=v[0:3])
class ConsumerProtocolSubscription(Message):
    topics: list[String] = []
    user_data: Bytes | None = None
    owned_partitions: Annotated[list[TopicPartition], v[1:], ignorable] = []
    generation_id: Annotated[Int32, v[2:], ignorable] = -1
    rack_id: Annotated[String | None, v[3], ignorable] = None


@message(versions=v[0:3])
class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[TopicPartition] = []
    user_data: Bytes | None = None
