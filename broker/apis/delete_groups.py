"""DeleteGroups (42), versions 0-2: answered when the group's removal is durable (KIP-229).

Version 0: all fields. Version 1: the same. Version 2: only the encoding is new (flexible).
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.coordinators.groups import Groups, Reply
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.order import GROUPS, MEMBERS, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.streams.keys import is_stream


@api(DeleteGroupsRequest, DeleteGroupsResponse, uses=GROUPS | MEMBERS | OFFSETS, changes=GROUPS | OFFSETS)
def handle(
    context: Context, request: DeleteGroupsRequest, groups: Groups
) -> DeleteGroupsResponse | DelayedResponse | Awaitable[DeleteGroupsResponse]:
    if any(map(is_stream, request.groups_names)):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return DeleteGroupsResponse(results=[DeletableGroupResult(name, code) for name in request.groups_names])
    if groups.elsewhere is not None:
        return groups.elsewhere.delete_groups(request)
    reply: Reply[DeleteGroupsResponse] = Reply()
    groups.coordinator.delete_groups(request, reply=reply)
    return reply.now_or_later()
