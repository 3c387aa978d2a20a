"""DescribeConfigs (API key 32): configuration of topics, brokers and groups with its sources."""

from typing import Annotated

from barnabas.wire.types import Bool, Int8, Int16, Int32, Message, String, Struct, ignorable, message, v


class DescribeConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: list[String] | None = []


@message(key=32, versions=v[1:4], flexible=v[4:])
class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource] = []
    include_synonyms: Bool = False
    include_documentation: Annotated[Bool, v[3:]] = False


class DescribeConfigsSynonym(Struct):
    name: String = ""
    value: String | None = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(Struct):
    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False
    synonyms: list[DescribeConfigsSynonym] = []
    config_type: Annotated[Int8, v[3:], ignorable] = 0
    documentation: Annotated[String | None, v[3:], ignorable] = ""


class DescribeConfigsResult(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[DescribeConfigsResourceResult] = []


@message(key=32, versions=v[1:4], flexible=v[4:])
class DescribeConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []
