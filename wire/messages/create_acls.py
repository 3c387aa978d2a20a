"""CreateAcls (API key 30): add access control entries."""

from barnabas.wire.types import Int8, Int16, Int32, Message, String, Struct, message, v


class AclCreation(Struct):
    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message(key=30, versions=v[1:3], flexible=v[2:])
class CreateAclsRequest(Message):
    creations: list[AclCreation] = []


class AclCreationResult(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""


@message(key=30, versions=v[1:3], flexible=v[2:])
class CreateAclsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []
