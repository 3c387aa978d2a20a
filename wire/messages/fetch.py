"""Fetch (API key 1): read record batches from partitions, in a session or without (KIP-227)."""

from typing import Annotated

from barnabas.wire.types import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    String,
    Struct,
    Tag,
    Uuid,
    ignorable,
    message,
    v,
)


class ReplicaState(Struct):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, v[9:], ignorable] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, v[12:]] = -1
    log_start_offset: Annotated[Int64, v[5:], ignorable] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, v[17:], Tag(0), ignorable] = ZERO_UUID
    high_watermark: Annotated[Int64, v[18], Tag(1), ignorable] = 2**63 - 1


class FetchTopic(Struct):
    topic: Annotated[String, v[:12], ignorable] = ""
    topic_id: Annotated[Uuid, v[13:], ignorable] = ZERO_UUID
    partitions: list[FetchPartition] = []


class ForgottenTopic(Struct):
    topic: Annotated[String, v[:12], ignorable] = ""
    topic_id: Annotated[Uuid, v[13:], ignorable] = ZERO_UUID
    partitions: list[Int32] = []


@message(key=1, versions=v[4:18], flexible=v[12:])
class FetchRequest(Message):
    cluster_id: Annotated[String | None, v[12:], Tag(0), ignorable] = None
    replica_id: Annotated[Int32, v[:14]] = -1
    replica_state: Annotated[ReplicaState, v[15:], Tag(1)] = ReplicaState()
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2**31 - 1
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, v[7:], ignorable] = 0
    session_epoch: Annotated[Int32, v[7:], ignorable] = -1
    topics: list[FetchTopic] = []
    forgotten_topics_data: Annotated[list[ForgottenTopic], v[7:]] = []
    rack_id: Annotated[String, v[11:], ignorable] = ""


class EpochEndOffset(Struct):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Struct):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, v[5:], ignorable] = -1
    diverging_epoch: Annotated[EpochEndOffset, v[12:], Tag(0)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, v[12:], Tag(1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, v[12:], Tag(2)] = SnapshotId()
    aborted_transactions: list[AbortedTransaction] | None = []
    preferred_read_replica: Annotated[Int32, v[11:]] = -1
    records: Records | None = None


class FetchableTopicResponse(Struct):
    topic: Annotated[String, v[:12], ignorable] = ""
    topic_id: Annotated[Uuid, v[13:], ignorable] = ZERO_UUID
    partitions: list[PartitionData] = []


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


@message(key=1, versions=v[4:18], flexible=v[12:])
class FetchResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, v[7:], ignorable] = 0
    session_id: Annotated[Int32, v[7:]] = 0
    responses: list[FetchableTopicResponse] = []
    node_endpoints: Annotated[list[NodeEndpoint], v[16:], Tag(0)] = []
