"""OffsetDelete (47), version 0: answered when the removal is durable (KIP-496)."""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.coordinators.refused import RepliedWith, split
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.order import GROUPS, MEMBERS, METADATA, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DELETE_GROUP, READ_TOPIC
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.wire.streams.keys import is_stream
from barnabas.wire.types import replace


@api(OffsetDeleteRequest, OffsetDeleteResponse, uses=METADATA | GROUPS | MEMBERS, changes=OFFSETS)
def handle(
    context: Context, request: OffsetDeleteRequest, groups: Groups
) -> OffsetDeleteResponse | DelayedResponse | Awaitable[OffsetDeleteResponse]:
    if is_stream(request.group_id) or not context.may(DELETE_GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=DELETE_GROUP.refusal)
    allowed, denied = split(request.topics, lambda topic: context.may(READ_TOPIC, topic.name))
    refused = [_refused(topic) for topic in denied]
    if refused:
        if not allowed:
            return OffsetDeleteResponse(topics=refused)
        request = replace(request, topics=allowed)
    if groups.elsewhere is not None:
        return _completed(groups.elsewhere.delete_offsets(request), refused)
    reply = RepliedWith(refused)
    groups.coordinator.delete_offsets(request, reply=reply)
    return reply.now_or_later()  # type: ignore[return-value]


async def _completed(
    asked: Awaitable[OffsetDeleteResponse], refused: list[OffsetDeleteResponseTopic]
) -> OffsetDeleteResponse:
    answer = await asked
    return replace(answer, topics=[*answer.topics, *refused])


def _refused(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    code = READ_TOPIC.refusal
    partitions = [OffsetDeleteResponsePartition(each.partition_index, code) for each in topic.partitions]
    return OffsetDeleteResponseTopic(topic.name, partitions)
