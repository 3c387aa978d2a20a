"""OffsetCommit (8), versions 2-10: answered when the offsets are durable.

Version 2: the first that is served. Versions 2-4: a retention time of the commit's own, which is heeded.
Version 5: without it. Version 6: the leader epoch of the last record (KIP-320), kept with the offset.
Version 7: the group.instance.id of static members (KIP-345). Version 8: only the encoding is new (flexible).
Version 9: an unknown group is GROUP_ID_NOT_FOUND (KIP-848); before, ILLEGAL_GENERATION.
Version 10: topics by id; an unknown one is UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from barnabas.broker.coordinators.groups import Groups, Reply
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.order import GROUPS, METADATA, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.wire.streams.keys import is_stream


@api(OffsetCommitRequest, OffsetCommitResponse, uses=METADATA | GROUPS, changes=OFFSETS)
def handle(context: Context, request: OffsetCommitRequest, groups: Groups) -> OffsetCommitResponse | DelayedResponse:
    if is_stream(request.group_id):
        return _refused(request)
    reply: Reply[OffsetCommitResponse] = Reply()
    groups.coordinator.commit(request, version=context.version, reply=reply)
    return reply.now_or_later()


def _refused(request: OffsetCommitRequest) -> OffsetCommitResponse:
    """The answer to who commits in the group of a stream."""
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    topics = [
        OffsetCommitResponseTopic(
            t.name, t.topic_id, [OffsetCommitResponsePartition(p.partition_index, code) for p in t.partitions]
        )
        for t in request.topics
    ]
    return OffsetCommitResponse(topics=topics)
