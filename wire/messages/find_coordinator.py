"""FindCoordinator (API key 10): the broker that looks after a group, a transactional id or share state."""

from typing import Annotated

from barnabas.wire.types import Int8, Int16, Int32, Message, String, Struct, ignorable, message, v


@message(key=10, versions=v[0:6], flexible=v[3:])
class FindCoordinatorRequest(Message):
    key: Annotated[String, v[:3]] = ""
    key_type: Annotated[Int8, v[1:]] = 0
    coordinator_keys: Annotated[list[String], v[4:]] = []


class Coordinator(Struct):
    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


@message(key=10, versions=v[0:6], flexible=v[3:])
class FindCoordinatorResponse(Message):
    throttle_time_ms: Annotated[Int32, v[1:], ignorable] = 0
    error_code: Annotated[Int16, v[:3]] = 0
    error_message: Annotated[String | None, v[1:3], ignorable] = ""
    node_id: Annotated[Int32, v[:3]] = 0
    host: Annotated[String, v[:3]] = ""
    port: Annotated[Int32, v[:3]] = 0
    coordinators: Annotated[list[Coordinator], v[4:]] = []
