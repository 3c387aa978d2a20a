"""IncrementalAlterConfigs (44), versions 0-1 (KIP-339): sets, deletes, appends to or subtracts from single keys.

Version 0: all fields. Version 1: only the encoding is new (flexible).
"""

from __future__ import annotations

from barnabas.broker.apis.alter_configs import alter
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.settings.resource_configs import ResourceConfigs
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
        kind, name = resource.resource_type, resource.resource_name
        changes = [(c.name, c.config_operation, c.value) for c in resource.configs]
        only_check = request.validate_only
        code, message = await alter(context, configs, kind, name, changes, whole=False, validate_only=only_check)
        answers.append(AlterConfigsResourceResponse(code, message, kind, name))
    return IncrementalAlterConfigsResponse(responses=answers)
