"""DescribeGroups (15), versions 0-6."""

from __future__ import annotations

from broker.order import GROUPS, MEMBERS, OFFSETS
from broker.registry import Context, api
from wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse


@api(DescribeGroupsRequest, DescribeGroupsResponse, uses=GROUPS | MEMBERS | OFFSETS)
def handle(context: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    return context.node.groups.coordinator.describe(request, context.version)
