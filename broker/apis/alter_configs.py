"""AlterConfigs (33), versions 0-2: the older call, which replaces all keys of a resource (KIP-133).

Version 0: all fields. Version 1: the same. Version 2: only the encoding is new (flexible).
"""

from __future__ import annotations

from barnabas.broker.metadata.image import RESOURCE_GROUP, RESOURCE_TOPIC
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.askers import Asker
from barnabas.broker.security.operations import ALTER_CLUSTER_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_TOPIC_CONFIGS
from barnabas.broker.settings.resource_configs import SET, ResourceConfigs
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse


@api(AlterConfigsRequest, AlterConfigsResponse, uses=METADATA, changes=METADATA)
async def handle(context: Context, request: AlterConfigsRequest, configs: ResourceConfigs) -> AlterConfigsResponse:
    answers = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        changes = [(c.name, SET, c.value) for c in resource.configs]
        only_check = request.validate_only
        code, message = await alter(context, configs, kind, name, changes, whole=True, validate_only=only_check)
        answers.append(AlterConfigsResourceResponse(code, message, kind, name))
    return AlterConfigsResponse(responses=answers)


async def alter(
    context: Context,
    configs: ResourceConfigs,
    kind: int,
    name: str,
    changes: list[tuple[str, int, str | None]],
    *,
    whole: bool,
    validate_only: bool,
) -> tuple[ErrorCode, str | None]:
    """Change one resource's keys for the client, as `ResourceConfigs.alter`. Returns the answer's code and message."""
    try:
        _check_alters(context, kind, name)
        asker = Asker(context.principal, context.connection.host)
        await configs.alter(kind, name, changes, whole=whole, validate_only=validate_only, asker=asker)
    except KafkaError as error:
        return error.code, str(error)
    return ErrorCode.NONE, None


def _check_alters(context: Context, kind: int, name: str) -> None:
    """Raises KafkaError if the client may not alter the configuration of this resource."""
    if kind == RESOURCE_TOPIC:
        context.check(ALTER_TOPIC_CONFIGS, name)
    elif kind == RESOURCE_GROUP:
        context.check(ALTER_GROUP_CONFIGS, name)
    else:
        context.check(ALTER_CLUSTER_CONFIGS)
