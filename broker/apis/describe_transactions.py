"""DescribeTransactions (65), version 0: state and partitions of transactions (KIP-664)."""

from __future__ import annotations

from barnabas.broker.coordinators.refused import split
from barnabas.broker.coordinators.transactions import Transactions
from barnabas.broker.net.order import TRANSACTIONS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID
from barnabas.broker.workers import Yielder
from barnabas.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from barnabas.wire.types import replace


@api(DescribeTransactionsRequest, DescribeTransactionsResponse, uses=TRANSACTIONS)
async def handle(
    context: Context, request: DescribeTransactionsRequest, transactions: Transactions
) -> DescribeTransactionsResponse:
    yielder = Yielder()
    found = []
    allowed, refused = split(request.transactional_ids, lambda each: context.may(DESCRIBE_TRANSACTIONAL_ID, each))
    for state in transactions.coordinator.describe(allowed):
        topics = [each for each in state.topics if context.may(DESCRIBE_TOPIC, each.topic, quiet=True)]
        found.append(replace(state, topics=topics))
        await yielder()
    code = DESCRIBE_TRANSACTIONAL_ID.refusal
    found += [TransactionState(error_code=code, transactional_id=each) for each in refused]
    return DescribeTransactionsResponse(transaction_states=found)
