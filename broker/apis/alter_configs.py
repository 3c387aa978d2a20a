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
        code, message = ErrorCode.NONE, None
        try:
            check_alters(context, resource.resource_type, resource.resource_name)
            await configs.alter(
                resource.resource_type,
                resource.resource_name,
                [(c.name, SET, c.value) for c in resource.configs],
                whole=True,
                validate_only=request.validate_only,
                asker=Asker(context.principal, context.connection.host),
            )
        except KafkaError as error:
            code, message = error.code, str(error)
        answers.append(AlterConfigsResourceResponse(code, message, resource.resource_type, resource.resource_name))
    return AlterConfigsResponse(responses=answers)


def check_alters(context: Context, kind: int, name: str) -> None:
    """Raises KafkaError if the client may not alter the configuration of this resource."""
    if kind == RESOURCE_TOPIC:
        context.check(ALTER_TOPIC_CONFIGS, name)
    elif kind == RESOURCE_GROUP:
        context.check(ALTER_GROUP_CONFIGS, name)
    else:
        context.check(ALTER_CLUSTER_CONFIGS)
