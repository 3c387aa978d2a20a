"""DescribeConfigs (32), versions 1-4: every key of a topic or broker with its value, source and synonyms.

Version 1: the source of each value, and its synonyms if asked for (KIP-226). Version 2: the same.
Version 3: the type of each key, and its documentation if asked for (KIP-569).
Version 4: only the encoding is new (flexible).
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.metadata.image import RESOURCE_GROUP, RESOURCE_TOPIC
from barnabas.broker.net.large import LargeResponse
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_CLUSTER_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_TOPIC_CONFIGS
from barnabas.broker.settings.keys import SOURCE_DEFAULT, TYPES
from barnabas.broker.settings.resource_configs import ConfigEntry, ResourceConfigs
from barnabas.broker.workers import Yielder
from barnabas.wire.errors import KafkaError
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

# A request for more yields to others: each topic takes 0.1 ms, and a hundred times the request's bytes in the answer.
RESOURCES_AT_ONCE = 20


@api(DescribeConfigsRequest, DescribeConfigsResponse, uses=METADATA)
def handle(
    context: Context, request: DescribeConfigsRequest, configs: ResourceConfigs
) -> DescribeConfigsResponse | Awaitable[LargeResponse]:
    # Each resource once, even if it is named twice: the answer is hundreds of times the request's size.
    resources = list({(r.resource_type, r.resource_name): r for r in request.resources}.values())
    if len(resources) > RESOURCES_AT_ONCE:
        return _handle_slowly(context, configs, request, resources)
    return DescribeConfigsResponse(results=[_describe(context, configs, request, asked) for asked in resources])


async def _handle_slowly(
    context: Context,
    configs: ResourceConfigs,
    request: DescribeConfigsRequest,
    resources: list[DescribeConfigsResource],
) -> LargeResponse:
    yielder = Yielder()
    results = []
    for asked in resources:
        results.append(_describe(context, configs, request, asked))
        await yielder()
    return LargeResponse(DescribeConfigsResponse(results=results))


def _describe(
    context: Context, configs: ResourceConfigs, request: DescribeConfigsRequest, asked: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        _check(context, asked.resource_type, asked.resource_name)
        entries = configs.describe(asked.resource_type, asked.resource_name)
    except KafkaError as error:
        return DescribeConfigsResult(
            error_code=error.code,
            error_message=str(error),
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )
    if asked.configuration_keys:
        wanted = set(asked.configuration_keys)
        entries = [entry for entry in entries if entry.name in wanted]
    return DescribeConfigsResult(
        error_message=None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[_show(entry, request) for entry in entries],
    )


def _check(context: Context, kind: int, name: str) -> None:
    """Raises KafkaError if the client may not see the configuration of this resource."""
    if kind == RESOURCE_TOPIC:
        context.check(DESCRIBE_TOPIC_CONFIGS, name)
    elif kind == RESOURCE_GROUP:
        context.check(DESCRIBE_GROUP_CONFIGS, name)
    else:
        context.check(DESCRIBE_CLUSTER_CONFIGS)


def _show(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = [DescribeConfigsSynonym(*synonym) for synonym in entry.synonyms] if request.include_synonyms else []
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source or SOURCE_DEFAULT,
        synonyms=synonyms,
        is_sensitive=entry.sensitive,
        config_type=TYPES[entry.key.type],
        documentation=entry.key.doc if request.include_documentation else None,
    )
