"""EndTxn (26), versions 0-5: commit or abort. Answered when the outcome is durable; the markers follow.

Version 0: all fields. Version 1: the same. Version 2: PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH.
Version 3: only the encoding is new (flexible). Version 4: TRANSACTION_ABORTABLE is possible (KIP-890).
Version 5: the answer has the producer's id and epoch for its next transaction (KIP-890); a repeated request is
recognised by them, and a transaction without partitions may be aborted.
"""

from __future__ import annotations

from barnabas.broker.coordinators.groups import Reply
from barnabas.broker.coordinators.transactions import Transactions
from barnabas.broker.jobs.queries import Queries
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.order import METADATA, RECORDS, TRANSACTIONS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import WRITE_TRANSACTIONAL_ID
from barnabas.wire.errors import KafkaError
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.types import replace


@api(EndTxnRequest, EndTxnResponse, uses=METADATA | RECORDS, changes=TRANSACTIONS)
def handle(
    context: Context, request: EndTxnRequest, transactions: Transactions, queries: Queries
) -> EndTxnResponse | DelayedResponse:
    try:
        known = queries.secret.named(request.transactional_id)
    except KafkaError as error:
        return EndTxnResponse(error_code=error.code)
    if known == request.transactional_id and not context.may(WRITE_TRANSACTIONAL_ID, known):
        return EndTxnResponse(error_code=WRITE_TRANSACTIONAL_ID.refusal)
    request = replace(request, transactional_id=known)
    reply: Reply[EndTxnResponse] = Reply()
    transactions.coordinator.end(request, version=context.version, reply=reply)
    return reply.now_or_later()
