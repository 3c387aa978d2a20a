"""DeleteGroups (42), versions 0-2: answered when the group's removal is durable."""

from __future__ import annotations

from collections.abc import Awaitable

from broker.groups import Reply
from broker.registry import Context, api
from wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse


@api(DeleteGroupsRequest, DeleteGroupsResponse)
def handle(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    reply: Reply[DeleteGroupsResponse] = Reply()
    context.node.groups.coordinator.delete_groups(request, reply=reply)
    return reply.now_or_later()
