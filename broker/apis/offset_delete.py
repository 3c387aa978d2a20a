"""OffsetDelete (47), version 0: answered when the removal is durable (KIP-496)."""

from __future__ import annotations

from collections.abc import Awaitable

from broker.groups import Reply
from broker.registry import Context, api
from wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


@api(OffsetDeleteRequest, OffsetDeleteResponse)
def handle(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    reply: Reply[OffsetDeleteResponse] = Reply()
    context.node.groups.coordinator.delete_offsets(request, reply=reply)
    return reply.now_or_later()
