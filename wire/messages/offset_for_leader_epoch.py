"""OffsetForLeaderEpoch (API key 23): the end offset of a leader epoch, to find divergence (KIP-101, KIP-320)."""

from typing import Annotated

from barnabas.wire.types import Int16, Int32, Int64, Message, String, Struct, ignorable, message, v


class OffsetForLeaderPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Struct):
    topic: String = ""
    partitions: list[OffsetForLeaderPartition] = []


@message(key=23, versions=v[2:4], flexible=v[4:])
class OffsetForLeaderEpochRequest(Message):
    replica_id: Annotated[Int32, v[3:], ignorable] = -2
    topics: list[OffsetForLeaderTopic] = []


class EpochEndOffset(Struct):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Struct):
    topic: String = ""
    partitions: list[EpochEndOffset] = []


@message(key=23, versions=v[2:4], flexible=v[4:])
class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult] = []
