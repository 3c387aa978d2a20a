"""Metadata (3), versions 0-13: the broker, and topics with their partitions.

A topic that does not exist is created if client and broker allow it, and is complete in the answer. Topics asked for
by id are never created.

Version 0: no topics in the request means all. Version 1: null means all, an empty list none; rack and controller.
Versions 2-3: cluster id, throttle time. Version 4: the client says whether topics may be created.
Versions 5-7: offline replicas (never any) and leader epochs. Version 8: allowed operations, if asked for (KIP-430).
Version 9: only the encoding is new (flexible). Version 10: topic ids in the answer (KIP-516).
Version 11: without the cluster's operations (KIP-700). Version 12: topics by id; an unknown one has no name.
Version 13: an error code for the whole answer; it is never set.
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.metadata.image import Leader, TopicImage
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.net.large import LargeResponse
from barnabas.broker.net.order import METADATA
from barnabas.broker.nodes import Nodes
from barnabas.broker.quotas.manager import QuotaExceeded
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import (
    CREATE_IN_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC,
    NOT_ASKED,
)
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.workers import Yielder, in_order
from barnabas.wire.acls import ResourceType
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.types import ZERO_UUID, replace

# An answer about more partitions yields to others while it is made, after each piece.
PARTITIONS_AT_ONCE, PARTITIONS_IN_A_PIECE = 1000, 500
# So does an answer about all topics, if there are more.
TOPICS_AT_ONCE = 1000
#: Name and id; one of them is set.
Asked = tuple[str | None, bytes]
#: The topic, or the answer that says why there is none.
Found = TopicImage | MetadataResponseTopic


@api(MetadataRequest, MetadataResponse, uses=METADATA, changes=METADATA)
def handle(
    context: Context,
    request: MetadataRequest,
    topics: TopicManager,
    nodes: Nodes,
    config: BrokerConfig,
) -> MetadataResponse | Awaitable[MetadataResponse | LargeResponse]:
    everything = request.topics is None or (context.version == 0 and not request.topics)
    create = request.allow_auto_topic_creation and config["auto.create.topics.enable"]
    known = topics.metadata.topics
    found: list[Found]
    if everything:
        if len(known) > TOPICS_AT_ONCE:
            return _all_allowed_slowly(context, request, topics, nodes)
        found = [known[name] for name in sorted(known) if context.may(DESCRIBE_TOPIC, name, quiet=True)]
    else:
        wanted = list(dict.fromkeys((asked.name, asked.topic_id) for asked in request.topics or ()))
        if create and any(topic_id == ZERO_UUID and name and name not in known for name, topic_id in wanted):
            return _create_and_answer(context, request, topics, nodes, wanted)
        found = [_find(context, topics, asked) for asked in wanted]
    if sum(len(topic.partitions) for topic in found if isinstance(topic, TopicImage)) > PARTITIONS_AT_ONCE:
        return _answer_slowly(context, request, topics, nodes, found, everything)
    return _answer(context, request, nodes, [_shown(topic) for topic in found])


async def _answer_slowly(
    context: Context,
    request: MetadataRequest,
    topics: TopicManager,
    nodes: Nodes,
    found: list[Found],
    everything: bool,
) -> LargeResponse:
    """The answer about many partitions; other tasks run meanwhile."""
    yielder = Yielder()
    answers = []
    for topic in found:
        if isinstance(topic, TopicImage) and topic.topic_id not in topics.metadata.by_id:  # deleted meanwhile
            if not everything:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answers.append(MetadataResponseTopic(error_code=code, name=topic.name, topic_id=topic.topic_id))
        elif isinstance(topic, TopicImage):
            partitions: list[MetadataResponsePartition] = []
            items = sorted(topic.partitions.items())
            for start in range(0, len(items), PARTITIONS_IN_A_PIECE):
                partitions += _partitions(items[start : start + PARTITIONS_IN_A_PIECE])
                await yielder()
            answers.append(_topic(topic, partitions))
        else:
            answers.append(topic)
    made = _answer(context, request, nodes, answers)
    return LargeResponse(made, owned=[answers, made.topics])


async def _create_and_answer(
    context: Context,
    request: MetadataRequest,
    topics: TopicManager,
    nodes: Nodes,
    wanted: list[Asked],
) -> LargeResponse:
    found: list[Found] = []
    all_allowed: bool | None = None
    for name, topic_id in wanted:
        code = ErrorCode.NONE
        is_new = topic_id == ZERO_UUID and name and name not in topics.metadata.topics
        if is_new and name and context.may(DESCRIBE_TOPIC, name, quiet=True):  # otherwise `_find` refuses
            if all_allowed is None:
                all_allowed = context.may(CREATE_IN_CLUSTER, quiet=True)
            try:
                if not all_allowed:
                    context.check(CREATE_TOPIC, name)
                context.check_change(topics.default_count(name), strict_since=0)
                await topics.auto_create(name)
            except QuotaExceeded:  # as if it were still being created: the client asks again
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            except KafkaError as error:
                code = error.code
        if code:
            found.append(MetadataResponseTopic(error_code=code, name=name))
        else:
            found.append(_find(context, topics, (name, topic_id)))
    return await _answer_slowly(context, request, topics, nodes, found, False)


async def _all_allowed_slowly(
    context: Context, request: MetadataRequest, topics: TopicManager, nodes: Nodes
) -> LargeResponse:
    """The answer about all topics that the client may see."""
    yielder = Yielder()
    found: list[Found] = []
    for name in await in_order(list(topics.metadata.topics)):
        topic = topics.metadata.topics.get(name)
        if topic is not None and context.may(DESCRIBE_TOPIC, name, quiet=True):
            found.append(topic)
        await yielder()
    return await _answer_slowly(context, request, topics, nodes, found, True)


def _find(context: Context, topics: TopicManager, asked: Asked) -> Found:
    """The topic, or the answer that says why there is none. A client without the right always gets the same one."""
    name, topic_id = asked
    if topic_id != ZERO_UUID:
        by_id = topics.metadata.by_id.get(topic_id)
        if by_id is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        if not context.may(DESCRIBE_TOPIC, by_id.name):
            return MetadataResponseTopic(error_code=DESCRIBE_TOPIC.refusal, name=None, topic_id=topic_id)
        return by_id
    if name is not None and not context.may(DESCRIBE_TOPIC, name):
        return MetadataResponseTopic(error_code=DESCRIBE_TOPIC.refusal, name=name)
    if name is None or not topics.is_valid_name(name):
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=name or "")
    unknown = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
    return topics.metadata.topics.get(name) or unknown


def _shown(topic: Found) -> MetadataResponseTopic:
    if isinstance(topic, TopicImage):
        return _topic(topic, _partitions(sorted(topic.partitions.items())))
    return topic


def _topic(topic: TopicImage, partitions: list[MetadataResponsePartition]) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=topic.internal, partitions=partitions
    )


def _partitions(items: list[tuple[int, Leader]]) -> list[MetadataResponsePartition]:
    """The partitions from (index, leader): the leader has the only replica."""
    return [
        MetadataResponsePartition(
            partition_index=index, leader_id=node, leader_epoch=epoch, replica_nodes=[node], isr_nodes=[node]
        )
        if node >= 0
        else MetadataResponsePartition(
            ErrorCode.LEADER_NOT_AVAILABLE, partition_index=index, leader_id=node, leader_epoch=epoch
        )
        for index, (node, epoch) in items
    ]


def _answer(
    context: Context, request: MetadataRequest, nodes: Nodes, answers: list[MetadataResponseTopic]
) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        answers = [replace(a, topic_authorized_operations=_allowed(context, a)) for a in answers]
    allowed = NOT_ASKED
    if request.include_cluster_authorized_operations:
        allowed = context.allowed(ResourceType.CLUSTER) if context.may(DESCRIBE_CLUSTER) else 0
    if context.version < 12:  # an unknown topic that was asked for by id has no name
        answers = [a if a.name is not None else replace(a, name="") for a in answers]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(*node) for node in nodes.all(context.connection.listener)],
        cluster_id=nodes.cluster_id,
        controller_id=nodes.controller_id,
        topics=answers,
        cluster_authorized_operations=allowed,
    )


def _allowed(context: Context, topic: MetadataResponseTopic) -> int:
    """The operations allowed to the client; none are listed for a topic that it may not see."""
    if topic.error_code == DESCRIBE_TOPIC.refusal:
        return NOT_ASKED
    return context.allowed(ResourceType.TOPIC, topic.name or "")
