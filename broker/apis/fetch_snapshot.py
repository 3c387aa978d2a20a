"""FetchSnapshot (59), versions 0-1: a node that starts reads a snapshot of the owner's metadata, in pieces (KIP-630).

Only nodes send it, and only for the partition of the metadata log. The snapshot to ask for is in the answer to a Fetch.

Version 0: the pieces. Version 1: the addresses of leaders, which do not change here, and the folder of the replica.
"""

from __future__ import annotations

from barnabas.broker.between.followers import Followers
from barnabas.broker.between.membership import check_node
from barnabas.broker.between.snapshots import OfferedSnapshots
from barnabas.broker.net.order import NOTHING
from barnabas.broker.registry import Context, api
from barnabas.storage.snapshots import SnapshotId
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshotData,
    TopicSnapshotData,
)


@api(FetchSnapshotRequest, FetchSnapshotResponse, uses=NOTHING, for_nodes=True)
async def handle(
    context: Context, request: FetchSnapshotRequest, snapshots: OfferedSnapshots, followers: Followers
) -> FetchSnapshotResponse:
    check_node(context)
    left = request.max_bytes
    topics = []
    for topic in request.topics:
        parts = []
        for part in topic.partitions:
            snapshot = SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch)
            error, size, piece = ErrorCode.NONE, 0, b""
            try:
                followers.door.led(topic.name, part.partition)
                size, piece = await snapshots.read(snapshot, part.position, left)
                left -= len(piece)
            except KafkaError as refusal:
                error = refusal.code
            parts.append(
                PartitionSnapshotData(
                    index=part.partition,
                    error_code=error,
                    snapshot_id=part.snapshot_id,
                    size=size,
                    position=part.position,
                    unaligned_records=piece,
                )
            )
        topics.append(TopicSnapshotData(topic.name, parts))
    return FetchSnapshotResponse(topics=topics)
