"""DescribeGroups (15), versions 0-6: state, protocol and members of groups.

Version 0: all fields. Versions 1-2: throttle time. Version 3: the client's allowed operations, if asked for (KIP-430).
Version 4: the static member's group.instance.id (KIP-345). Version 5: only the encoding is new (flexible).
Version 6: an unknown group is GROUP_ID_NOT_FOUND with a message (KIP-1043); before, it is a group in state Dead.
"""

from __future__ import annotations

from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.net.order import GROUPS, MEMBERS, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import Resource, ResourceType
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
