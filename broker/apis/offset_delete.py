"""OffsetDelete (47), version 0: answered when the removal is durable (KIP-496)."""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.coordinators.groups import Groups, Reply
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.order import GROUPS, MEMBERS, METADATA, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.wire.streams.keys import is_stream


@api(OffsetDeleteRequest, OffsetDeleteResponse, uses=METADATA | GROUPS | MEMBERS, changes=OFFSETS)
def handle(
    context: Context, request: OffsetDeleteRequest, groups: Groups
) -> OffsetDeleteResponse | DelayedResponse | Awaitable[OffsetDeleteResponse]:
    if is_stream(request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if groups.elsewhere is not None:
        return groups.elsewhere.delete_offsets(request)
    reply: Reply[OffsetDeleteResponse] = Reply()
    groups.coordinator.delete_offsets(request, reply=reply)
    return reply.now_or_later()
