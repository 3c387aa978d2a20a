"""ListConfigResources (API key 74): names of resources that have configuration (KIP-1142)."""

from typing import Annotated

from barnabas.wire.types import Int8, Int16, Int32, Message, String, Struct, ignorable, message, v


@message(key=74, versions=v[0:1], flexible=v[0:])
class ListConfigResourcesRequest(Message):
    resource_types: Annotated[list[Int8], v[1]] = []


class ConfigResource(Struct):
    resource_name: String = ""
    resource_type: Annotated[Int8, v[1], ignorable] = 16


@message(key=74, versions=v[0:1], flexible=v[0:])
class ListConfigResourcesResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []
