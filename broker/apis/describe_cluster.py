"""DescribeCluster (60), versions 0-2 (KIP-700): the brokers.

Version 0: brokers, and the operations that the client may do to the cluster.
Version 1: can ask for controllers instead of brokers (KIP-919); no controller listens, so that is refused.
Version 2: can ask for fenced brokers too (KIP-1073); none ever is.
"""

from __future__ import annotations

from barnabas.broker.net.order import NOTHING
from barnabas.broker.nodes import Nodes
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_CLUSTER, NOT_ASKED
from barnabas.wire.acls import ResourceType
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2


@api(DescribeClusterRequest, DescribeClusterResponse, uses=NOTHING)
def handle(context: Context, request: DescribeClusterRequest, nodes: Nodes) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="This is a broker listener: ask it for brokers.",
            endpoint_type=request.endpoint_type,
        )
    allowed = NOT_ASKED
    if request.include_cluster_authorized_operations:
        allowed = context.allowed(ResourceType.CLUSTER) if context.may(DESCRIBE_CLUSTER) else 0
    return DescribeClusterResponse(
        cluster_id=nodes.cluster_id,
        controller_id=nodes.controller_id,
        brokers=[DescribeClusterBroker(*node) for node in nodes.all(context.connection.listener)],
        cluster_authorized_operations=allowed,
    )
