"""Group metadata in `__consumer_offsets`: one record per group, written at every stable generation."""

from typing import Annotated

from barnabas.wire.types import Bytes, Int32, Int64, Message, String, Struct, ignorable, message, v


@message(key=2, versions=v[0])
class GroupMetadataKey(Message):
    group: String = ""


class MemberMetadata(Struct):
    member_id: String = ""
    group_instance_id: Annotated[String | None, v[3:], ignorable] = None
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout: Annotated[Int32, v[1:], ignorable] = -1
    session_timeout: Int32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


@message(key=2, versions=v[0:4], flexible=v[4:])
class GroupMetadataValue(Message):
    protocol_type: String = ""
    generation: Int32 = 0
    protocol: String | None = ""
    leader: String | None = ""
    current_state_timestamp: Annotated[Int64, v[2:], ignorable] = -1
    members: list[MemberMetadata] = []
