"""DescribeTopicPartitions (75), version 0: topics with their partitions, in pages (KIP-966)."""

from __future__ import annotations

from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_TOPIC
from barnabas.broker.settings.config import BrokerConfig
from barnabas.wire.acls import ResourceType
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


@api(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, uses=METADATA)
def handle(
    context: Context, request: DescribeTopicPartitionsRequest, topics: TopicManager, config: BrokerConfig
) -> DescribeTopicPartitionsResponse:
    known = topics.metadata.topics
    if request.topics:
        names = sorted({asked.name for asked in request.topics})
        refused = {name for name in names if not context.may(DESCRIBE_TOPIC, name)}
    else:
        names = sorted(name for name in known if context.may(DESCRIBE_TOPIC, name, quiet=True))
        refused = set()
    first = 0
    if request.cursor is not None:
        if request.cursor.partition_index < 0:
            names = []
        else:
            names = [name for name in names if name >= request.cursor.topic_name]
            if names and names[0] == request.cursor.topic_name:
                first = request.cursor.partition_index
    room = max(1, min(request.response_partition_limit, config["max.request.partition.size.limit"]))
    answers: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if room == 0:
            return DescribeTopicPartitionsResponse(topics=answers, next_cursor=Cursor(name, 0))
        if name in refused:
            code = DESCRIBE_TOPIC.refusal
            answers.append(DescribeTopicPartitionsResponseTopic(error_code=code, name=name))
            continue
        topic = known.get(name)
        if topic is None:
            legal = topics.is_valid_name(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
            answers.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=code,
                    name=name,
                    topic_authorized_operations=context.allowed(ResourceType.TOPIC, name),
                )
            )
            continue
        page = [item for item in sorted(topic.partitions.items()) if item[0] >= first][: room + 1]
        answers.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=topic.internal,
                topic_authorized_operations=context.allowed(ResourceType.TOPIC, name),
                partitions=[
                    DescribeTopicPartitionsResponsePartition(
                        partition_index=index,
                        leader_id=node,
                        leader_epoch=epoch,
                        error_code=ErrorCode.NONE if node >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                        replica_nodes=[node] if node >= 0 else [],
                        isr_nodes=[node] if node >= 0 else [],
                        eligible_leader_replicas=[],
                        last_known_elr=[],
                    )
                    for index, (node, epoch) in page[:room]
                ],
            )
        )
        if len(page) > room:
            return DescribeTopicPartitionsResponse(topics=answers, next_cursor=Cursor(name, page[room][0]))
        room -= len(page)
        first = 0
    return DescribeTopicPartitionsResponse(topics=answers)
