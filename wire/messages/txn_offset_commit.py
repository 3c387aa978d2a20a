"""TxnOffsetCommit (API key 28): store a group's positions as part of a transaction."""

from typing import Annotated

from barnabas.wire.types import Int16, Int32, Int64, Message, String, Struct, ignorable, message, v


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, v[2:], ignorable] = -1
    committed_metadata: String | None = ""


class TxnOffsetCommitRequestTopic(Struct):
    name: String = ""
    partitions: list[TxnOffsetCommitRequestPartition] = []


@message(key=28, versions=v[0:5], flexible=v[3:])
class TxnOffsetCommitRequest(Message):
    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Annotated[Int32, v[3:]] = -1
    member_id: Annotated[String, v[3:]] = ""
    group_instance_id: Annotated[String | None, v[3:]] = None
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Struct):
    name: String = ""
    partitions: list[TxnOffsetCommitResponsePartition] = []


@message(key=28, versions=v[0:5], flexible=v[3:])
class TxnOffsetCommitResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []
