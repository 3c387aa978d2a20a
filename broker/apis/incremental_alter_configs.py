"""IncrementalAlterConfigs (44), versions 0-1 (KIP-339): sets, deletes, appends to or subtracts from single keys.

Version 0: all fields. Version 1: only the encoding is new (flexible).
"""

from __future__ import annotations

from barnabas.broker.apis.alter_configs import check_alters
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.askers import Asker
from barnabas.broker.settings.resource_configs import ResourceConfigs
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


@api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, uses=METADATA, changes=METADATA)
async def handle(
    context: Context, request: IncrementalAlterConfigsRequest, configs: ResourceConfigs
) -> IncrementalAlterConfigsResponse:
    answers = []
    for resource in request.resources:
        code, message = ErrorCode.NONE, None
        try:
            check_alters(context, resource.resource_type, resource.resource_name)
            await configs.alter(
                resource.resource_type,
                resource.resource_name,
                [(c.name, c.config_operation, c.value) for c in resource.configs],
                whole=False,
                validate_only=request.validate_only,
                asker=Asker(context.principal, context.connection.host),
            )
        except KafkaError as error:
            code, message = error.code, str(error)
        answers.append(AlterConfigsResourceResponse(code, message, resource.resource_type, resource.resource_name))
    return IncrementalAlterConfigsResponse(responses=answers)
