"""OffsetCommit (8), versions 2-10: answered when the offsets are durable.

Version 2: the first that is served. Versions 2-4: a retention time of the commit's own, which is heeded.
Version 5: without it. Version 6: the leader epoch of the last record (KIP-320), kept with the offset.
Version 7: the group.instance.id of static members (KIP-345). Version 8: only the encoding is new (flexible).
Version 9: an unknown group is GROUP_ID_NOT_FOUND (KIP-848); before, ILLEGAL_GENERATION.
Version 10: topics by id; an unknown one is UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.coordinators.refused import RepliedWith, split
from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.order import GROUPS, METADATA, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import READ_GROUP, READ_TOPIC
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.wire.streams.keys import is_stream
from barnabas.wire.types import replace

BY_ID_SINCE = 10


@api(OffsetCommitRequest, OffsetCommitResponse, uses=METADATA | GROUPS, changes=OFFSETS)
def handle(
    context: Context, request: OffsetCommitRequest, groups: Groups, metadata: MetadataImage
) -> OffsetCommitResponse | DelayedResponse:
    if is_stream(request.group_id) or not context.may(READ_GROUP, request.group_id):
        return OffsetCommitResponse(topics=_refused(request.topics, READ_GROUP.refusal))

    def may(topic: OffsetCommitRequestTopic) -> bool:
        if context.version < BY_ID_SINCE:
            return context.may(READ_TOPIC, topic.name)
        known = metadata.by_id.get(topic.topic_id)
        return known is None or context.may(READ_TOPIC, known.name)

    allowed, refused = split(request.topics, may)
    if refused:
        if not allowed:
            return OffsetCommitResponse(topics=_refused(refused, READ_TOPIC.refusal))
        request = replace(request, topics=allowed)
    reply = RepliedWith(_refused(refused, READ_TOPIC.refusal))
    groups.coordinator.commit(request, version=context.version, reply=reply)
    return reply.now_or_later()  # type: ignore[return-value]


def _refused(topics: list[OffsetCommitRequestTopic], code: ErrorCode) -> list[OffsetCommitResponseTopic]:
    return [
        OffsetCommitResponseTopic(
            t.name, t.topic_id, [OffsetCommitResponsePartition(p.partition_index, code) for p in t.partitions]
        )
        for t in topics
    ]
