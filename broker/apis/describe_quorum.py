"""DescribeQuorum (55), versions 0-2 (KIP-595): the metadata log has one voter, its owner; other nodes observe it.

Version 0: leader, high watermark and voters. Version 1: when a replica last fetched and was caught up (KIP-836): now.
Version 2: error messages, and the addresses of the nodes (KIP-853), left out where no partition is described.
"""

from __future__ import annotations

from barnabas.broker.between.followers import Followers
from barnabas.broker.clock import Clock
from barnabas.broker.identity import Identity
from barnabas.broker.metadata.image import METADATA_TOPIC, MetadataImage
from barnabas.broker.net.order import METADATA
from barnabas.broker.nodes import Nodes
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_CLUSTER
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionDataResponse,
    ReplicaState,
    TopicDataResponse,
)


@api(DescribeQuorumRequest, DescribeQuorumResponse, uses=METADATA)
def handle(
    context: Context,
    request: DescribeQuorumRequest,
    metadata: MetadataImage,
    identity: Identity,
    nodes: Nodes,
    followers: Followers,
    clock: Clock,
) -> DescribeQuorumResponse:
    if not context.may(DESCRIBE_CLUSTER):
        return DescribeQuorumResponse(error_code=DESCRIBE_CLUSTER.refusal, error_message=None)
    topics = [
        TopicDataResponse(
            topic.topic_name,
            [
                _describe(metadata, identity, followers, clock.wall_ms(), topic.topic_name, each.partition_index)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    shown = []
    if context.version >= 2 and any(not part.error_code for topic in topics for part in topic.partitions):
        listener = context.connection.listener
        shown = [Node(each.id, [Listener(listener, each.host, each.port)]) for each in nodes.all(listener)]
    return DescribeQuorumResponse(error_message=None, topics=topics, nodes=shown)


def _describe(
    metadata: MetadataImage, identity: Identity, followers: Followers, now: int, topic: str, index: int
) -> PartitionDataResponse:
    if (topic, index) != (METADATA_TOPIC, 0):
        return PartitionDataResponse(
            index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    log = metadata.log
    voter = ReplicaState(
        identity.node_id, log_end_offset=log.log_end_offset, last_fetch_timestamp=now, last_caught_up_timestamp=now
    )
    return PartitionDataResponse(
        index,
        error_message=None,
        leader_id=identity.node_id,
        leader_epoch=log.leader_epoch,
        high_watermark=log.high_watermark,
        current_voters=[voter],
        observers=[
            ReplicaState(node, log_end_offset=offset, last_fetch_timestamp=now, last_caught_up_timestamp=now)
            for node, offset in sorted(followers.nodes.items())
        ],
    )
