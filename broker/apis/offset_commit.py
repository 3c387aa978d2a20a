"""OffsetCommit (8), versions 2-10: answered when the offsets are durable."""

from __future__ import annotations

from collections.abc import Awaitable

from broker.groups import Reply
from broker.registry import Context, api
from wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse


@api(OffsetCommitRequest, OffsetCommitResponse)
def handle(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    reply: Reply[OffsetCommitResponse] = Reply()
    context.node.groups.coordinator.commit(request, version=context.version, reply=reply)
    return reply.now_or_later()
