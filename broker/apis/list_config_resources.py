"""ListConfigResources (74), versions 0-1: the resources that have a configuration.

Version 0: client metrics only (KIP-714). Version 1: resources of the types asked for, or of all
(KIP-1142).
"""

from __future__ import annotations

from barnabas.broker.identity import Identity
from barnabas.broker.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    MetadataImage,
)
from barnabas.broker.net.large import LargeResponse
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_CLUSTER_CONFIGS
from barnabas.broker.workers import Yielder
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


@api(ListConfigResourcesRequest, ListConfigResourcesResponse, uses=METADATA)
async def handle(
    context: Context, request: ListConfigResourcesRequest, metadata: MetadataImage, identity: Identity
) -> ListConfigResourcesResponse | LargeResponse:
    if not context.may(DESCRIBE_CLUSTER_CONFIGS):
        return ListConfigResourcesResponse(error_code=DESCRIBE_CLUSTER_CONFIGS.refusal)
    nodes = [str(node) for node in sorted({identity.node_id, *metadata.nodes})]
    names: dict[int, list[str]] = {
        RESOURCE_TOPIC: sorted(metadata.topics),
        RESOURCE_BROKER: nodes,
        RESOURCE_BROKER_LOGGER: nodes,
        RESOURCE_CLIENT_METRICS: sorted(metadata.client_metrics),
        RESOURCE_GROUP: [],
    }
    asked = set(request.resource_types or names) if context.version >= 1 else {RESOURCE_CLIENT_METRICS}
    if not asked <= names.keys():
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    yielder = Yielder()
    found = []
    for kind in sorted(asked):
        for name in names[kind]:
            found.append(ConfigResource(name, kind))
            await yielder()
    return LargeResponse(ListConfigResourcesResponse(config_resources=found))
