"""CreateTopics (API key 19): create topics with partitions, assignments and configuration."""

from typing import Annotated

from barnabas.wire.types import (
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    Tag,
    Uuid,
    ignorable,
    message,
    v,
)


class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreatableTopicConfig(Struct):
    name: String = ""
    value: String | None = ""


class CreatableTopic(Struct):
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


@message(key=19, versions=v[2:7], flexible=v[5:])
class CreateTopicsRequest(Message):
    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopicConfigs(Struct):
    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(Struct):
    name: String = ""
    topic_id: Annotated[Uuid, v[7], ignorable] = ZERO_UUID
    error_code: Int16 = 0
    error_message: String | None = ""
    topic_config_error_code: Annotated[Int16, v[5:], Tag(0), ignorable] = 0
    num_partitions: Annotated[Int32, v[5:], ignorable] = -1
    replication_factor: Annotated[Int16, v[5:], ignorable] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, v[5:], ignorable] = []


@message(key=19, versions=v[2:7], flexible=v[5:])
class CreateTopicsResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult] = []
