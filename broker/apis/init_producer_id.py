"""InitProducerId (22), versions 0-5: producer ids for idempotent and transactional producers, never given twice.

Ids come in blocks that the metadata log records before the first of them is given out. A transactional id has one
producer, and a new one fences the previous one: the transaction coordinator does that. The streams driver's id is an
exception: the driver fences its predecessor in its own way.

Version 0: all fields. Version 1: the same. Version 2: only the encoding is new (flexible).
Version 3: a producer may send the id and epoch that it has (KIP-360): with a transactional id it gets the next epoch,
else a new id. Version 4: PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH.
Version 5: TRANSACTION_ABORTABLE is possible (KIP-890); it is never given. Version 6, for two-phase commit (KIP-939), is
not stable in Kafka 4.3, and not served.
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.coordinators.groups import Reply
from barnabas.broker.coordinators.transactions import Transactions
from barnabas.broker.jobs.queries import Queries
from barnabas.broker.metadata.producer_ids import ProducerIds
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.order import METADATA, TRANSACTIONS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import IDEMPOTENT_WRITE, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.types import replace


@api(InitProducerIdRequest, InitProducerIdResponse, uses=METADATA, changes=TRANSACTIONS)
def handle(
    context: Context,
    request: InitProducerIdRequest,
    queries: Queries,
    producer_ids: ProducerIds,
    transactions: Transactions,
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse] | DelayedResponse:
    if queries.secret.proves(request.transactional_id):
        return _give_driver(queries)
    if request.transactional_id is not None:
        try:
            known = queries.secret.named(request.transactional_id)
        except KafkaError as error:
            return InitProducerIdResponse(error_code=error.code)
        if known == request.transactional_id and not context.may(WRITE_TRANSACTIONAL_ID, known):
            return InitProducerIdResponse(error_code=WRITE_TRANSACTIONAL_ID.refusal)
        request = replace(request, transactional_id=known)
        reply: Reply[InitProducerIdResponse] = Reply()
        transactions.coordinator.init_producer_id(request, version=context.version, client=context.client, reply=reply)
        return reply.now_or_later()
    if not context.may(IDEMPOTENT_WRITE, quiet=True) and not context.may_any(WRITE_TOPIC):
        return InitProducerIdResponse(error_code=IDEMPOTENT_WRITE.refusal)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
    return _give(producer_ids)


async def _give_driver(queries: Queries) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await queries.new_writer())
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code)


async def _give(producer_ids: ProducerIds) -> InitProducerIdResponse:
    # A producer that asks again with its old id (KIP-360) gets a new id: that fences the old one as a new epoch would.
    try:
        return InitProducerIdResponse(producer_id=await producer_ids.next())
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code)
