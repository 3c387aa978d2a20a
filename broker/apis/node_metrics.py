"""NodeMetrics (32000), version 0: the metrics of this node as text, for a page with those of all nodes.

Only nodes send it.
"""

from __future__ import annotations

from barnabas.broker.between.membership import check_node
from barnabas.broker.metrics.page import Page
from barnabas.broker.net.order import NOTHING
from barnabas.broker.registry import Context, api
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.node_metrics import NodeMetricsRequest, NodeMetricsResponse


@api(NodeMetricsRequest, NodeMetricsResponse, uses=NOTHING, for_nodes=True)
async def handle(context: Context, request: NodeMetricsRequest, page: Page) -> NodeMetricsResponse:
    check_node(context)
    if page.render is None:
        return NodeMetricsResponse(b"", ErrorCode.INVALID_REQUEST)
    try:
        text, _ = await page.render(request.accept)
    except OSError:
        return NodeMetricsResponse(b"", ErrorCode.KAFKA_STORAGE_ERROR)
    return NodeMetricsResponse(text)
