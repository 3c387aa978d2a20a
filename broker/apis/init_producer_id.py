"""InitProducerId (22), versions 0-5: producer ids for idempotent producers, never given twice.

Ids come in blocks that the metadata log records before the first of them is given out. Transactional producers are
refused: there is no transaction coordinator yet. The one exception is the streams driver, whose id fences the driver
before it.

Version 0: all fields. Version 1: the same. Version 2: only the encoding is new (flexible).
Version 3: a producer may send the id and epoch that it has (KIP-360); it gets a new id.
Versions 4-5: PRODUCER_FENCED and TRANSACTION_ABORTABLE are possible; they are never given.
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.order import METADATA
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.queries import Queries
from barnabas.broker.registry import Context, api
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


@api(InitProducerIdRequest, InitProducerIdResponse, uses=METADATA)
def handle(
    context: Context, request: InitProducerIdRequest, queries: Queries, producer_ids: ProducerIds
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if queries.secret.proves(request.transactional_id):
        return _give_driver(queries)
    if request.transactional_id is not None:
        empty = request.transactional_id == ""
        code = ErrorCode.INVALID_REQUEST if empty else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return InitProducerIdResponse(error_code=code)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
    return _give(producer_ids)


async def _give_driver(queries: Queries) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await queries.new_writer())
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code)


async def _give(producer_ids: ProducerIds) -> InitProducerIdResponse:
    # A producer that asks again with its old id (KIP-360) gets a new one: that fences the old as well as a new epoch.
    try:
        return InitProducerIdResponse(producer_id=await producer_ids.next())
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code)
