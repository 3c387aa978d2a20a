"""AlterConfigs (API key 33): replace a resource's configuration as a whole."""

from barnabas.wire.types import Bool, Int8, Int16, Int32, Message, String, Struct, message, v


class AlterableConfig(Struct):
    name: String = ""
    value: String | None = ""


class AlterConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[AlterableConfig] = []


@message(key=33, versions=v[0:2], flexible=v[2:])
class AlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


@message(key=33, versions=v[0:2], flexible=v[2:])
class AlterConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
