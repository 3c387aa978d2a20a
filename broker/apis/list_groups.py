"""ListGroups (16), versions 0-5: all groups, or those of some states and types.

Version 0: ids and protocol types. Versions 1-2: throttle time. Version 3: only the encoding is new (flexible).
Version 4: the state, in the answer and as a filter (KIP-518). Version 5: the group type, likewise (KIP-848).
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.net.order import GROUPS, MEMBERS, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_CLUSTER, DESCRIBE_GROUP
from barnabas.broker.workers import Yielder
from barnabas.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.wire.types import replace


@api(ListGroupsRequest, ListGroupsResponse, uses=GROUPS | MEMBERS | OFFSETS)
def handle(
    context: Context, request: ListGroupsRequest, groups: Groups
) -> ListGroupsResponse | Awaitable[ListGroupsResponse]:
    answer = groups.coordinator.list_groups(request)
    return answer if context.may(DESCRIBE_CLUSTER, quiet=True) else _those_allowed(context, answer)


async def _those_allowed(context: Context, answer: ListGroupsResponse) -> ListGroupsResponse:
    yielder = Yielder()
    shown = []
    for group in answer.groups:
        if context.may(DESCRIBE_GROUP, group.group_id, quiet=True):
            shown.append(group)
        await yielder()
    return replace(answer, groups=shown)
