"""WriteShareGroupState (API key 85): write a share partition's state (KIP-932)."""

from typing import Annotated

from barnabas.wire.types import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    ignorable,
    message,
    v,
)


class StateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class PartitionData(Struct):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Annotated[Int32, v[1], ignorable] = -1
    state_batches: list[StateBatch] = []


class WriteStateData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


@message(key=85, versions=v[0:1], flexible=v[0:])
class WriteShareGroupStateRequest(Message):
    group_id: String = ""
    topics: list[WriteStateData] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class WriteStateResult(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


@message(key=85, versions=v[0:1], flexible=v[0:])
class WriteShareGroupStateResponse(Message):
    results: list[WriteStateResult] = []
