"""SyncGroup (14), versions 0-5: hand out and receive the assignment; answered when it is durable."""

from __future__ import annotations

from collections.abc import Awaitable

from broker.groups import Reply
from broker.registry import Context, api
from wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@api(SyncGroupRequest, SyncGroupResponse)
def handle(context: Context, request: SyncGroupRequest) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    reply: Reply[SyncGroupResponse] = Reply()
    context.node.groups.coordinator.sync(request, version=context.version, reply=reply)
    return reply.now_or_later()
