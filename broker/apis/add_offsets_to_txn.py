"""AddOffsetsToTxn (25), versions 0-4: a group's offsets are about to be committed in a transaction.

Version 0: all fields. Version 1: the same. Version 2: PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH.
Version 3: only the encoding is new (flexible). Version 4: TRANSACTION_ABORTABLE is possible (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.coordinators.groups import Groups, Reply
from barnabas.broker.coordinators.transactions import Transactions
from barnabas.broker.jobs.queries import Queries
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.large import given
from barnabas.broker.net.order import METADATA, TRANSACTIONS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import READ_GROUP, WRITE_TRANSACTIONAL_ID
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


@api(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, uses=METADATA, changes=TRANSACTIONS)
def handle(
    context: Context, request: AddOffsetsToTxnRequest, transactions: Transactions, queries: Queries, groups: Groups
) -> AddOffsetsToTxnResponse | DelayedResponse | Awaitable[AddOffsetsToTxnResponse]:
    if queries.secret.is_claimed(request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refusal = context.refusal(WRITE_TRANSACTIONAL_ID, request.transactional_id)
    refusal = refusal or context.refusal(READ_GROUP, request.group_id)
    if refusal:
        return AddOffsetsToTxnResponse(error_code=refusal)
    if not groups.is_there:
        return _when_there(context, request, transactions, groups)
    return _add(context, request, transactions).now_or_later()


def _add(
    context: Context, request: AddOffsetsToTxnRequest, transactions: Transactions
) -> Reply[AddOffsetsToTxnResponse]:
    reply: Reply[AddOffsetsToTxnResponse] = Reply()
    transactions.coordinator.add_offsets(request, version=context.version, reply=reply)
    return reply


async def _when_there(
    context: Context, request: AddOffsetsToTxnRequest, transactions: Transactions, groups: Groups
) -> AddOffsetsToTxnResponse:
    """Answer once `__consumer_offsets` exists. Clients send this before they look for the group's coordinator.

    Only that look-up creates the topic; until then the number of partitions, and so the group's partition, is unknown.
    """
    try:
        await groups.ready()
    except KafkaError:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return await given(_add(context, request, transactions).now_or_later())  # type: ignore[return-value]
