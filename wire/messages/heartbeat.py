"""Heartbeat (API key 12): keep a classic group member's session alive."""

from typing import Annotated

from barnabas.wire.types import Int16, Int32, Message, String, ignorable, message, v


@message(key=12, versions=v[0:4], flexible=v[4:])
class HeartbeatRequest(Message):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, v[3:]] = None


@message(key=12, versions=v[0:4], flexible=v[4:])
class HeartbeatResponse(Message):
    throttle_time_ms: Annotated[Int32, v[1:], ignorable] = 0
    error_code: Int16 = 0
