"""SyncGroup (API key 14): hand out and receive a classic group's assignment."""

from typing import Annotated

from barnabas.wire.types import Bytes, Int16, Int32, Message, String, Struct, ignorable, message, v


class SyncGroupRequestAssignment(Struct):
    member_id: String = ""
    assignment: Bytes = b""


@message(key=14, versions=v[0:5], flexible=v[4:])
class SyncGroupRequest(Message):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, v[3:]] = None
    protocol_type: Annotated[String | None, v[5], ignorable] = None
    protocol_name: Annotated[String | None, v[5], ignorable] = None
    assignments: list[SyncGroupRequestAssignment] = []


@message(key=14, versions=v[0:5], flexible=v[4:])
class SyncGroupResponse(Message):
    throttle_time_ms: Annotated[Int32, v[1:], ignorable] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[String | None, v[5], ignorable] = None
    protocol_name: Annotated[String | None, v[5], ignorable] = None
    assignment: Bytes = b""
