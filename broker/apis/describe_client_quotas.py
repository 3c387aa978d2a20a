"""DescribeClientQuotas (48), versions 0-1 (KIP-546): the quotas that AlterClientQuotas has stored.

Version 0: all fields. Version 1: only the encoding is new (flexible).
"""

from __future__ import annotations

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.net.large import LargeResponse
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_CLUSTER_CONFIGS
from barnabas.broker.settings.quotas import Component, check_filter
from barnabas.broker.workers import Yielder
from barnabas.wire.errors import KafkaError
from barnabas.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


@api(DescribeClientQuotasRequest, DescribeClientQuotasResponse, uses=METADATA)
async def handle(context: Context, request: DescribeClientQuotasRequest, metadata: MetadataImage) -> LargeResponse:
    components = [Component(c.entity_type, c.match_type, c.match) for c in request.components]
    try:
        context.check(DESCRIBE_CLUSTER_CONFIGS)
        check_filter(components)
    except KafkaError as error:
        return LargeResponse(
            DescribeClientQuotasResponse(error_code=error.code, error_message=str(error), entries=None)
        )
    yielder = Yielder()
    entries = []
    for found in metadata.quotas.matching(components, request.strict):
        if found is not None:
            entity, values = found
            entries.append(EntryData([EntityData(*each) for each in entity], [ValueData(*v) for v in values.items()]))
        await yielder()
    return LargeResponse(DescribeClientQuotasResponse(error_message=None, entries=entries))
