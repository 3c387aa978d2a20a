"""DescribeGroups (15), versions 0-6."""

from __future__ import annotations

from barnabas.broker import operations
from barnabas.broker.order import GROUPS, MEMBERS, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.wire.types import replace


@api(DescribeGroupsRequest, DescribeGroupsResponse, uses=GROUPS | MEMBERS | OFFSETS)
def handle(context: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    answer = context.node.groups.coordinator.describe(request, context.version)
    if not request.include_authorized_operations:
        return answer
    groups = [
        group if group.error_code else replace(group, authorized_operations=operations.OF_GROUP)
        for group in answer.groups
    ]
    return replace(answer, groups=groups)
