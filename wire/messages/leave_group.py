"""LeaveGroup (API key 13): take members out of a classic group."""

from typing import Annotated

from barnabas.wire.types import Int16, Int32, Message, String, Struct, ignorable, message, v


class MemberIdentity(Struct):
    member_id: String = ""
    group_instance_id: String | None = None
    reason: Annotated[String | None, v[5], ignorable] = None


@message(key=13, versions=v[0:5], flexible=v[4:])
class LeaveGroupRequest(Message):
    group_id: String = ""
    member_id: Annotated[String, v[:2]] = ""
    members: Annotated[list[MemberIdentity], v[3:]] = []


class MemberResponse(Struct):
    member_id: String = ""
    group_instance_id: String | None = ""
    error_code: Int16 = 0


@message(key=13, versions=v[0:5], flexible=v[4:])
class LeaveGroupResponse(Message):
    throttle_time_ms: Annotated[Int32, v[1:], ignorable] = 0
    error_code: Int16 = 0
    members: Annotated[list[MemberResponse], v[3:]] = []
