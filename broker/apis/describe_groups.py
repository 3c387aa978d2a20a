"""DescribeGroups (15), versions 0-6: state, protocol and members of groups.

Version 0: all fields. Versions 1-2: throttle time. Version 3: the client's allowed operations, if asked for (KIP-430).
Version 4: the static member's group.instance.id (KIP-345). Version 5: only the encoding is new (flexible).
Version 6: an unknown group is GROUP_ID_NOT_FOUND with a message (KIP-1043); before, it is a group in state Dead.
"""

from __future__ import annotations

from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.coordinators.refused import split
from barnabas.broker.net.order import GROUPS, MEMBERS, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_GROUP
from barnabas.wire.acls import ResourceType
from barnabas.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.wire.types import replace


@api(DescribeGroupsRequest, DescribeGroupsResponse, uses=GROUPS | MEMBERS | OFFSETS)
def handle(context: Context, request: DescribeGroupsRequest, groups: Groups) -> DescribeGroupsResponse:
    allowed, refused = split(request.groups, lambda group_id: context.may(DESCRIBE_GROUP, group_id))
    answer = groups.coordinator.describe(replace(request, groups=allowed) if refused else request, context.version)
    described = answer.groups
    if request.include_authorized_operations:
        described = [_with_operations(context, group) for group in described]
    described += [_refused(group_id) for group_id in dict.fromkeys(refused)]
    return replace(answer, groups=described)


def _refused(group_id: str) -> DescribedGroup:
    return DescribedGroup(error_code=DESCRIBE_GROUP.refusal, error_message=None, group_id=group_id)


def _with_operations(context: Context, group: DescribedGroup) -> DescribedGroup:
    if group.error_code:
        return group
    return replace(group, authorized_operations=context.allowed(ResourceType.GROUP, group.group_id))
