"""AddPartitionsToTxn (24), versions 0-5: what a producer is about to write into belongs to its transaction.

Up to version 3 producers ask for one transaction. If one of its partitions cannot be added, none is.

Version 0: all fields. Version 1: the same. Version 2: PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH.
Version 3: only the encoding is new (flexible).
Version 4: many transactions, and partitions that are only looked for (KIP-890): brokers ask so of each other.
Version 5: TRANSACTION_ABORTABLE is possible.
"""

from __future__ import annotations

from barnabas.broker.delayed_response import DelayedResponse
from barnabas.broker.groups import Reply
from barnabas.broker.order import METADATA, TRANSACTIONS
from barnabas.broker.registry import Context, api
from barnabas.broker.security import CLUSTER, Operation
from barnabas.broker.transactions import Transactions
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

BATCHED_SINCE = 4


@api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, uses=METADATA, changes=TRANSACTIONS)
def handle(
    context: Context, request: AddPartitionsToTxnRequest, transactions: Transactions
) -> AddPartitionsToTxnResponse | DelayedResponse:
    if context.version >= BATCHED_SINCE and not context.authorize(Operation.CLUSTER_ACTION, CLUSTER):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    reply: Reply[AddPartitionsToTxnResponse] = Reply()
    transactions.coordinator.add_partitions(request, version=context.version, reply=reply)
    return reply.now_or_later()
