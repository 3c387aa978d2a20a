"""DeleteGroups (API key 42): delete empty groups."""

from barnabas.wire.types import Int16, Int32, Message, String, Struct, message, v


@message(key=42, versions=v[0:2], flexible=v[2:])
class DeleteGroupsRequest(Message):
    groups_names: list[String] = []


class DeletableGroupResult(Struct):
    group_id: String = ""
    error_code: Int16 = 0


@message(key=42, versions=v[0:2], flexible=v[2:])
class DeleteGroupsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []
