"""DeleteTopics (20), versions 1-6: by name, from version 6 also by id.

Version 1: the first that is served; INVALID_REQUEST where delete.topic.enable is false. Version 2: the same.
Version 3: TOPIC_DELETION_DISABLED instead of that. Version 4: only the encoding is new (flexible).
Version 5: the answer has error messages, and THROTTLING_QUOTA_EXCEEDED is possible; older ones are throttled, and not
refused (KIP-599).
Version 6: a topic is named by name or by id; the answer has both, and no name where the id is unknown (KIP-516).
"""

from __future__ import annotations

from barnabas.broker.jobs.queries import Queries
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DELETE_TOPIC, DESCRIBE_TOPIC
from barnabas.broker.settings.config import BrokerConfig
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import QUERIES_TOPIC
from barnabas.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.wire.types import ZERO_UUID

STRICT_SINCE = 5


@api(DeleteTopicsRequest, DeleteTopicsResponse, uses=METADATA, changes=METADATA)
async def handle(
    context: Context, request: DeleteTopicsRequest, topics: TopicManager, queries: Queries, config: BrokerConfig
) -> DeleteTopicsResponse:
    asked = request.topics if context.version >= 6 else [DeleteTopicState(name=name) for name in request.topic_names]
    answers = [
        await _delete(context, topics, queries, config, state)
        for state in dict.fromkeys((t.name, t.topic_id) for t in asked)
    ]
    return DeleteTopicsResponse(responses=answers)


async def _delete(
    context: Context, topics: TopicManager, queries: Queries, config: BrokerConfig, asked: tuple[str | None, bytes]
) -> DeletableTopicResult:
    name, topic_id = asked
    try:
        if (name is None) == (topic_id == ZERO_UUID):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Name a topic by name or by id, not both.")
        if not config["delete.topic.enable"]:
            code = ErrorCode.TOPIC_DELETION_DISABLED if context.version >= 3 else ErrorCode.INVALID_REQUEST
            raise KafkaError(code, "Topic deletion is disabled (delete.topic.enable).")
        if name is not None:
            _check_delete(context, topics, name)
        image = topics.find(name, topic_id)
        found = image.name
        if name is None and not context.may(DELETE_TOPIC, found):
            if context.may(DESCRIBE_TOPIC, found, quiet=True):
                name = found
            raise KafkaError(DELETE_TOPIC.refusal)
        if found == QUERIES_TOPIC:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{QUERIES_TOPIC} belongs to the broker.")
        context.check_change(len(image.partitions), strict_since=STRICT_SINCE)
        topic = await topics.delete(name, topic_id)
        await queries.delete_dead_letters(topic)
        return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
    except KafkaError as error:
        return DeletableTopicResult(
            name=name if context.version >= 6 else name or "",
            topic_id=topic_id,
            error_code=error.code,
            error_message=str(error),
        )


def _check_delete(context: Context, topics: TopicManager, name: str) -> None:
    """Raises KafkaError if the client may not delete a topic; "unknown topic" only if it may know that."""
    if not context.may(DELETE_TOPIC, name):
        if context.may(DESCRIBE_TOPIC, name, quiet=True):
            topics.find(name)
        raise KafkaError(DELETE_TOPIC.refusal)
