"""FetchSnapshot (API key 59): a replica of the metadata log reads a snapshot of its leader, in pieces (KIP-630)."""

from typing import Annotated

from barnabas.wire.messages.fetch import LeaderIdAndEpoch, SnapshotId
from barnabas.wire.types import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    String,
    Struct,
    Tag,
    UInt16,
    Uuid,
    ignorable,
    message,
    v,
)


class PartitionSnapshot(Struct):
    partition: Int32 = 0
    current_leader_epoch: Int32 = 0
    snapshot_id: SnapshotId = SnapshotId(0, 0)
    position: Int64 = 0
    replica_directory_id: Annotated[Uuid, v[1:], Tag(0), ignorable] = ZERO_UUID


class TopicSnapshot(Struct):
    name: String = ""
    partitions: list[PartitionSnapshot] = []


@message(key=59, versions=v[0:1], flexible=v[0:])
class FetchSnapshotRequest(Message):
    cluster_id: Annotated[String | None, v[0:], Tag(0)] = None
    replica_id: Int32 = -1
    max_bytes: Int32 = 2**31 - 1
    topics: list[TopicSnapshot] = []


class PartitionSnapshotData(Struct):
    index: Int32 = 0
    error_code: Int16 = 0
    snapshot_id: SnapshotId = SnapshotId(0, 0)
    current_leader: Annotated[LeaderIdAndEpoch, v[0:], Tag(0)] = LeaderIdAndEpoch(0, 0)
    size: Int64 = 0
    position: Int64 = 0
    unaligned_records: Records = b""


class TopicSnapshotData(Struct):
    name: String = ""
    partitions: list[PartitionSnapshotData] = []


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: String = ""
    port: UInt16 = 0


@message(key=59, versions=v[0:1], flexible=v[0:])
class FetchSnapshotResponse(Message):
    throttle_time_ms: Annotated[Int32, v[0:], ignorable] = 0
    error_code: Int16 = 0
    topics: list[TopicSnapshotData] = []
    node_endpoints: Annotated[list[NodeEndpoint], v[1:], Tag(0)] = []
