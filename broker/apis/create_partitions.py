"""CreatePartitions (37), versions 0-3: a topic gets more partitions, never fewer (KIP-195).

Version 0: the new total, with or without an assignment, which can name this broker only. Version 1: the same.
Version 2: only the encoding is new (flexible).
Version 3: THROTTLING_QUOTA_EXCEEDED is possible; older ones are throttled, and not refused (KIP-599).
"""

from __future__ import annotations

from collections import Counter

from barnabas.broker.jobs.queries import Queries
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import ALTER_TOPIC
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import QUERIES_TOPIC
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_SINCE = 3


@api(CreatePartitionsRequest, CreatePartitionsResponse, uses=METADATA, changes=METADATA)
async def handle(
    context: Context, request: CreatePartitionsRequest, topics: TopicManager, queries: Queries
) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in request.topics)
    results = []
    for topic in {t.name: t for t in request.topics}.values():
        try:
            if named[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            context.check(ALTER_TOPIC, topic.name)
            await _grow(context, topics, queries, topic, request.validate_only)
            results.append(CreatePartitionsTopicResult(name=topic.name))
        except KafkaError as error:
            results.append(
                CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=str(error))
            )
    return CreatePartitionsResponse(results=results)


async def _grow(
    context: Context,
    topics: TopicManager,
    queries: Queries,
    topic: CreatePartitionsTopic,
    validate_only: bool,
) -> None:
    if topic.name == QUERIES_TOPIC:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{QUERIES_TOPIC} belongs to the broker.")
    if topic.name in queries.plans:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"{topic.name} is a query topic: it grows when its source grows."
        )
    added = topic.count - len(topics.find(topic.name).partitions)
    leaders = None
    if topic.assignments is not None:
        if added > 0 and len(topic.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {len(topic.assignments)} assignment(s) "
                "were specified.",
            )
        topics.placement.check([a.broker_ids for a in topic.assignments])
        leaders = [each.broker_ids[0] for each in topic.assignments] if added > 0 else None
    if added > 0:
        context.check_change(added, strict_since=STRICT_SINCE)
    await topics.grow(topic.name, topic.count, validate_only=validate_only, leaders=leaders)
