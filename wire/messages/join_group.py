"""JoinGroup (API key 11): enter a classic group's next generation."""

from typing import Annotated

from barnabas.wire.types import Bool, Bytes, Int16, Int32, Message, Nullable, String, Struct, ignorable, message, v


class JoinGroupRequestProtocol(Struct):
    name: String = ""
    metadata: Bytes = b""


@message(key=11, versions=v[0:9], flexible=v[6:])
class JoinGroupRequest(Message):
    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, v[1:], ignorable] = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, v[5:]] = None
    protocol_type: String = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: Annotated[String | None, v[8:], ignorable] = None


class JoinGroupResponseMember(Struct):
    member_id: String = ""
    group_instance_id: Annotated[String | None, v[5:], ignorable] = None
    metadata: Bytes = b""


@message(key=11, versions=v[0:9], flexible=v[6:])
class JoinGroupResponse(Message):
    throttle_time_ms: Annotated[Int32, v[2:], ignorable] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, v[7:], ignorable] = None
    protocol_name: Annotated[String | None, Nullable(v[7:])] = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, v[9]] = False
    member_id: String = ""
    members: list[JoinGroupResponseMember] = []
