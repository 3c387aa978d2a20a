"""ListGroups (API key 16): the groups that this broker coordinates."""

from typing import Annotated

from barnabas.wire.types import Int16, Int32, Message, String, Struct, ignorable, message, v


@message(key=16, versions=v[0:5], flexible=v[3:])
class ListGroupsRequest(Message):
    states_filter: Annotated[list[String], v[4:]] = []
    types_filter: Annotated[list[String], v[5]] = []


class ListedGroup(Struct):
    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, v[4:], ignorable] = ""
    group_type: Annotated[String, v[5], ignorable] = ""


@message(key=16, versions=v[0:5], flexible=v[3:])
class ListGroupsResponse(Message):
    throttle_time_ms: Annotated[Int32, v[1:], ignorable] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup] = []
