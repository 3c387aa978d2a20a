"""ReadShareGroupStateSummary (API key 87): read the start offset of a share partition (KIP-932)."""

from typing import Annotated

from barnabas.wire.types import ZERO_UUID, Int16, Int32, Int64, Message, String, Struct, Uuid, ignorable, message, v


class PartitionData(Struct):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateSummaryData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


@message(key=87, versions=v[0:1], flexible=v[0:])
class ReadShareGroupStateSummaryRequest(Message):
    group_id: String = ""
    topics: list[ReadStateSummaryData] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Annotated[Int32, v[1], ignorable] = -1


class ReadStateSummaryResult(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


@message(key=87, versions=v[0:1], flexible=v[0:])
class ReadShareGroupStateSummaryResponse(Message):
    results: list[ReadStateSummaryResult] = []
