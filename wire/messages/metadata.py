"""Metadata (API key 3): brokers, topics, partitions and their leaders."""

from typing import Annotated

from barnabas.wire.types import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Message,
    Nullable,
    String,
    Struct,
    Uuid,
    ignorable,
    message,
    v,
)


class MetadataRequestTopic(Struct):
    topic_id: Annotated[Uuid, v[10:], ignorable] = ZERO_UUID
    name: Annotated[String | None, Nullable(v[10:])] = ""


@message(key=3, versions=v[0:13], flexible=v[9:])
class MetadataRequest(Message):
    topics: Annotated[list[MetadataRequestTopic] | None, Nullable(v[1:])] = []
    allow_auto_topic_creation: Annotated[Bool, v[4:]] = True
    include_cluster_authorized_operations: Annotated[Bool, v[8:10]] = False
    include_topic_authorized_operations: Annotated[Bool, v[8:]] = False


class MetadataResponseBroker(Struct):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, v[1:], ignorable] = None


class MetadataResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, v[7:], ignorable] = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: Annotated[list[Int32], v[5:], ignorable] = []


class MetadataResponseTopic(Struct):
    error_code: Int16 = 0
    name: Annotated[String | None, Nullable(v[12:])] = ""
    topic_id: Annotated[Uuid, v[10:], ignorable] = ZERO_UUID
    is_internal: Annotated[Bool, v[1:], ignorable] = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[Int32, v[8:]] = -(2**31)


@message(key=3, versions=v[0:13], flexible=v[9:])
class MetadataResponse(Message):
    throttle_time_ms: Annotated[Int32, v[3:], ignorable] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[String | None, v[2:], ignorable] = None
    controller_id: Annotated[Int32, v[1:], ignorable] = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Annotated[Int32, v[8:10]] = -(2**31)
    error_code: Annotated[Int16, v[13], ignorable] = 0
