"""OffsetCommit (8), versions 2-10: answered when the offsets are durable."""

from __future__ import annotations

from barnabas.broker.groups import Groups, Reply
from barnabas.broker.later import Later
from barnabas.broker.order import GROUPS, METADATA, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse


@api(OffsetCommitRequest, OffsetCommitResponse, uses=METADATA | GROUPS, changes=OFFSETS)
def handle(context: Context, request: OffsetCommitRequest, groups: Groups) -> OffsetCommitResponse | Later:
    reply: Reply[OffsetCommitResponse] = Reply()
    groups.coordinator.commit(request, version=context.version, reply=reply)
    return reply.now_or_later()
