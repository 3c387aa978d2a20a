"""DescribeGroups (API key 15): state and members of classic groups."""

from typing import Annotated

from barnabas.wire.types import Bool, Bytes, Int16, Int32, Message, String, Struct, ignorable, message, v


@message(key=15, versions=v[0:6], flexible=v[5:])
class DescribeGroupsRequest(Message):
    groups: list[String] = []
    include_authorized_operations: Annotated[Bool, v[3:]] = False


class DescribedGroupMember(Struct):
    member_id: String = ""
    group_instance_id: Annotated[String | None, v[4:], ignorable] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: Annotated[String | None, v[6]] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Annotated[Int32, v[3:]] = -(2**31)


@message(key=15, versions=v[0:6], flexible=v[5:])
class DescribeGroupsResponse(Message):
    throttle_time_ms: Annotated[Int32, v[1:], ignorable] = 0
    groups: list[DescribedGroup] = []
