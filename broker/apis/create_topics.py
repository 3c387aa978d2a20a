"""CreateTopics (19), versions 2-7: a topic with its partitions and settings, or only a check of them (`validate_only`).

Version 2: the first that is served. Version 3: the same.
Version 4: -1 as partition count or replication factor means the broker's default (KIP-464); older ones may send it too.
Version 5: the answer has partition count, replication factor and settings (KIP-525).
Version 6: THROTTLING_QUOTA_EXCEEDED is possible; older ones are throttled, and not refused (KIP-599).
Version 7: the answer has the topic's id.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from barnabas.broker.jobs.owners import Owners
from barnabas.broker.jobs.queries import Queries, check_keys, is_query
from barnabas.broker.jobs.streams import Streams, check_stream_keys, is_stream
from barnabas.broker.metadata.placement import Placement
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.askers import Asker
from barnabas.broker.security.operations import CREATE_IN_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS
from barnabas.broker.security.principals import NODE
from barnabas.broker.settings.config import TOPIC, BrokerConfig
from barnabas.broker.settings.resource_configs import tell_unused, topic_entries
from barnabas.broker.workers import Yielder
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import QUERIES_TOPIC
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.queries.keys import DEAD_LETTER_OF
from barnabas.wire.types import ZERO_UUID, replace

STRICT_SINCE = 6
_NAME = "CreateTopics"


@api(CreateTopicsRequest, CreateTopicsResponse, uses=METADATA, changes=METADATA)
async def handle(
    context: Context,
    request: CreateTopicsRequest,
    topics: TopicManager,
    queries: Queries,
    streams: Streams,
    owners: Owners,
    config: BrokerConfig,
) -> CreateTopicsResponse:
    asker = Asker(context.principal, context.connection.host)
    named = Counter(topic.name for topic in request.topics)
    answers = []
    done: set[str] = set()
    yielder = Yielder()
    all_allowed = context.may(CREATE_IN_CLUSTER, quiet=True)
    for topic in request.topics:
        await yielder()
        if topic.name in done:
            continue
        done.add(topic.name)
        try:
            if named[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if not all_allowed:
                context.check(CREATE_TOPIC, topic.name)
            made = await _create(context, topics, queries, streams, owners, config, topic, request, asker)
            answers.append(made if context.may(DESCRIBE_TOPIC_CONFIGS, topic.name, quiet=True) else _hidden(made))
        except KafkaError as error:
            answers.append(CreatableTopicResult(name=topic.name, error_code=error.code, error_message=str(error)))
    return CreateTopicsResponse(topics=answers)


async def _create(
    context: Context,
    topics: TopicManager,
    queries: Queries,
    streams: Streams,
    owners: Owners,
    config: BrokerConfig,
    asked: CreatableTopic,
    request: CreateTopicsRequest,
    asker: Asker,
) -> CreatableTopicResult:
    if context.principal == NODE:  # the broker's own topic: a coordinator's, or one that it creates for a client
        made = await topics.auto_create(asked.name)
        return CreatableTopicResult(name=asked.name, topic_id=made.topic_id, error_message=None, configs=None)
    count, leaders = _assignment(config, topics.placement, asked)
    configs = {entry.name: entry.value for entry in asked.configs}
    if asked.name == QUERIES_TOPIC:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{asked.name} is made by the broker when it is needed.")
    topics.check_new(asked.name, count, configs)
    check_keys(configs)
    check_stream_keys(configs)
    may_read = partial(owners.check_reads, asker, api=_NAME)
    if is_query(configs):
        wanted = -1 if not asked.assignments and asked.num_partitions == -1 else count
        count, configs = await queries.prepare(asked.name, wanted, configs, request.timeout_ms, may_read)
        owners.check(asker, asked.name, configs, _NAME)
    elif is_stream(configs):
        configs = await streams.prepare(asked.name, configs, request.timeout_ms, may_read)
        owners.check(asker, asked.name, configs, _NAME)
    elif configs.get(DEAD_LETTER_OF):
        count, configs = await queries.prepare_dead_letters(asked.name, configs)
    context.check_change(count, strict_since=STRICT_SINCE)
    topic_id = ZERO_UUID
    values = {key: value for key, value in configs.items() if value is not None}
    if not request.validate_only:
        topic_id = (await topics.create(asked.name, count, configs, leaders=leaders)).topic_id
        tell_unused(topics.log, TOPIC, values)
    entries = [
        CreatableTopicConfigs(name=e.name, value=e.value, config_source=e.source) for e in topic_entries(config, values)
    ]
    return CreatableTopicResult(
        name=asked.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=count,
        replication_factor=1,
        configs=entries,
    )


def _hidden(made: CreatableTopicResult) -> CreatableTopicResult:
    """The answer to a client that may create the topic but not see its configuration."""
    return replace(
        made,
        topic_config_error_code=DESCRIBE_TOPIC_CONFIGS.refusal,
        num_partitions=-1,
        replication_factor=-1,
        configs=None,
    )


def _assignment(config: BrokerConfig, placement: Placement, asked: CreatableTopic) -> tuple[int, list[int] | None]:
    """The number of partitions, from the count or from the assignment, and the leaders if the request names them.

    Raises KafkaError if they do not fit.
    """
    if not asked.assignments:
        if asked.replication_factor not in (-1, 1):
            code = ErrorCode.INVALID_REPLICATION_FACTOR
            if asked.replication_factor < 1:
                raise KafkaError(code, "Replication factor must be larger than 0, or -1 to use the default value.")
            raise KafkaError(
                code,
                f"Unable to replicate the partition {asked.replication_factor} time(s): "
                "The target replication factor cannot be reached because only 1 broker(s) are registered.",
            )
        if asked.num_partitions == -1:
            return config["num.partitions"], None
        return asked.num_partitions, None
    if asked.num_partitions != -1 or asked.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but partition count or replication factor was not set to -1.",
        )
    indexes = sorted(a.partition_index for a in asked.assignments)
    if indexes != list(range(len(indexes))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions should be a consecutive 0-based integer sequence."
        )
    placement.check([a.broker_ids for a in asked.assignments])
    by_index = sorted(asked.assignments, key=lambda each: each.partition_index)
    return len(indexes), [each.broker_ids[0] for each in by_index]
