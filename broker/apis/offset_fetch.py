"""OffsetFetch (9), versions 1-10: of one group, from version 8 of several.

Version 1: each partition has an error code. Versions 2-4: null topics mean all; an error code for the whole group.
Versions 5-6: the leader epoch (KIP-320). Version 7: `require_stable`: UNSTABLE_OFFSET_COMMIT while a transaction that
commits the offset is open (KIP-447). Version 8: several groups, each with an error code (KIP-709).
Version 9: member id and epoch (KIP-848), for the newer group protocol, which is not served.
Version 10: topics by id; an unknown one is UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.coordinators.refused import split
from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.net.order import GROUPS, METADATA, OFFSETS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_GROUP, DESCRIBE_TOPIC
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.wire.types import ZERO_UUID, replace

#: The versions with an error code for a whole group, with several groups, and with topics by id.
GROUP_ERRORS_SINCE, MANY_GROUPS_SINCE, BY_ID_SINCE = 2, 8, 10


@api(OffsetFetchRequest, OffsetFetchResponse, uses=METADATA | GROUPS | OFFSETS)
def handle(
    context: Context, request: OffsetFetchRequest, groups: Groups, metadata: MetadataImage
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    asked = request
    rights = None
    if context.connection.authorizer is not None:
        rights = Rights(context, metadata)
        asked = rights.allowed(request)
    if groups.elsewhere is not None:
        return _completed(groups.elsewhere.fetch(asked, context.version), rights)
    answer = groups.coordinator.fetch_offsets(asked, context.version)
    return answer if rights is None else rights.completed(answer)


async def _completed(asked: Awaitable[OffsetFetchResponse], rights: Rights | None) -> OffsetFetchResponse:
    answer = await asked
    return answer if rights is None else rights.completed(answer)


class Rights:
    """The part of a request that a client may see. A group that it may not describe gets only that error. If it asks
    for all topics of a group, those that it may not describe are left out.
    """

    def __init__(self, context: Context, metadata: MetadataImage) -> None:
        self._context, self._metadata, self._version = context, metadata, context.version
        self._refused_groups: list[OffsetFetchResponseGroup] = []
        self._refused_topics: dict[str, list[OffsetFetchResponseTopics]] = {}
        #: Groups whose topics are all asked for.
        self._everything: set[str] = set()
        self._only_group = ""

    def allowed(self, request: OffsetFetchRequest) -> OffsetFetchRequest:
        """The part of a request that the client has the rights for."""
        if self._version >= MANY_GROUPS_SINCE:
            groups = [self._allowed(group) for group in {group.group_id: group for group in request.groups}.values()]
            return replace(request, groups=[group for group in groups if group is not None])
        self._only_group = request.group_id
        topics = None
        if request.topics is not None:
            topics = [OffsetFetchRequestTopics(each.name, ZERO_UUID, each.partition_indexes) for each in request.topics]
        group = self._allowed(OffsetFetchRequestGroup(request.group_id, topics=topics))
        if group is None:
            return replace(request, topics=[])
        if group.topics is None:
            return request
        left = [OffsetFetchRequestTopic(each.name, each.partition_indexes) for each in group.topics]
        return replace(request, topics=left)

    def _allowed(self, group: OffsetFetchRequestGroup) -> OffsetFetchRequestGroup | None:
        if not self._context.may(DESCRIBE_GROUP, group.group_id):
            code = DESCRIBE_GROUP.refusal
            topics = [_refused(each, code) for each in group.topics or ()] if self._version < GROUP_ERRORS_SINCE else []
            self._refused_groups.append(OffsetFetchResponseGroup(group.group_id, topics, code))
            return None
        if group.topics is None:
            self._everything.add(group.group_id)
            return group
        allowed, refused = split(group.topics, lambda each: self._may(each.name, each.topic_id, quiet=False))
        self._refused_topics[group.group_id] = [_refused(each, DESCRIBE_TOPIC.refusal) for each in refused]
        return replace(group, topics=allowed)

    def _may(self, name: str, topic_id: bytes, *, quiet: bool) -> bool:
        if self._version >= BY_ID_SINCE:
            topic = self._metadata.by_id.get(topic_id)
            if topic is None:
                return True  # the answer says only that it does not exist
            name = topic.name
        return self._context.may(DESCRIBE_TOPIC, name, quiet=quiet)

    def completed(self, answer: OffsetFetchResponse) -> OffsetFetchResponse:
        """The answer for the allowed part, with the refusals added."""
        if self._version >= MANY_GROUPS_SINCE:
            return replace(answer, groups=[*map(self._completed, answer.groups), *self._refused_groups])
        if self._refused_groups:
            (group,) = self._refused_groups
            topics = [_in_older_form(each) for each in group.topics]
            code = group.error_code if self._version >= GROUP_ERRORS_SINCE else ErrorCode.NONE
            return OffsetFetchResponse(error_code=code, topics=topics)
        if self._only_group in self._everything:
            shown = [each for each in answer.topics if self._may(each.name, ZERO_UUID, quiet=True)]
            return replace(answer, topics=shown)
        refused = self._refused_topics.get(self._only_group, [])
        return replace(answer, topics=[*answer.topics, *map(_in_older_form, refused)])

    def _completed(self, group: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
        if group.group_id in self._everything:
            shown = [each for each in group.topics if self._may(each.name, each.topic_id, quiet=True)]
            return replace(group, topics=shown)
        if group.error_code:
            return group
        return replace(group, topics=[*group.topics, *self._refused_topics.get(group.group_id, ())])


def _refused(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    partitions = [
        OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=code)
        for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopics(topic.name, topic.topic_id, partitions)


def _in_older_form(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    partitions = [
        OffsetFetchResponsePartition(
            partition_index=each.partition_index, committed_offset=-1, error_code=each.error_code
        )
        for each in topic.partitions
    ]
    return OffsetFetchResponseTopic(topic.name, partitions)
