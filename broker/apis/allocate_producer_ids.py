"""AllocateProducerIds (67), version 0: a node gets a block of producer ids of its own (KIP-730). Only nodes ask."""

from __future__ import annotations

from barnabas.broker.between.membership import check_node
from barnabas.broker.metadata.producer_ids import ProducerIds
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.wire.errors import KafkaError
from barnabas.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


@api(AllocateProducerIdsRequest, AllocateProducerIdsResponse, uses=METADATA, changes=METADATA, for_nodes=True)
async def handle(
    context: Context, request: AllocateProducerIdsRequest, producer_ids: ProducerIds
) -> AllocateProducerIdsResponse:
    check_node(context)
    try:
        first, count = await producer_ids.reserve()
    except KafkaError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=count)
