"""DescribeGroups (15), versions 0-6."""

from __future__ import annotations

from barnabas.broker.groups import Groups
from barnabas.broker.order import GROUPS, MEMBERS, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.broker.security import Resource, ResourceType
from barnabas.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.wire.types import replace


@api(DescribeGroupsRequest, DescribeGroupsResponse, uses=GROUPS | MEMBERS | OFFSETS)
def handle(context: Context, request: DescribeGroupsRequest, groups: Groups) -> DescribeGroupsResponse:
    answer = groups.coordinator.describe(request, context.version)
    if not request.include_authorized_operations:
        return answer
    return replace(answer, groups=[_with_operations(context, group) for group in answer.groups])


def _with_operations(context: Context, group: DescribedGroup) -> DescribedGroup:
    if group.error_code:
        return group
    return replace(group, authorized_operations=context.allowed(Resource(ResourceType.GROUP, group.group_id)))
