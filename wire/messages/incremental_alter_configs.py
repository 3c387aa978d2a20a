"""IncrementalAlterConfigs (API key 44): set, delete, append to or subtract from single configuration keys (KIP-339)."""

from barnabas.wire.types import Bool, Int8, Int16, Int32, Message, String, Struct, message, v


class AlterableConfig(Struct):
    name: String = ""
    config_operation: Int8 = 0
    value: String | None = ""


class AlterConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[AlterableConfig] = []


@message(key=44, versions=v[0:1], flexible=v[1:])
class IncrementalAlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


@message(key=44, versions=v[0:1], flexible=v[1:])
class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
