"""DescribeCluster (60), versions 0-2. Version 1 can ask for controllers instead of brokers (KIP-919); none listen."""

from __future__ import annotations

from barnabas.broker import operations
from barnabas.broker.order import NOTHING
from barnabas.broker.registry import Context, api
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2


@api(DescribeClusterRequest, DescribeClusterResponse, uses=NOTHING)
def handle(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    node = context.node
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="This is a broker listener: ask it for brokers.",
            endpoint_type=request.endpoint_type,
        )
    allowed = operations.NOT_ASKED
    if request.include_cluster_authorized_operations:
        allowed = operations.OF_CLUSTER
    host, port = node.advertised(context.connection.listener)
    return DescribeClusterResponse(
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        brokers=[DescribeClusterBroker(node.node_id, host, port, node.config["broker.rack"])],
        cluster_authorized_operations=allowed,
    )
