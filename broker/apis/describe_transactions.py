"""DescribeTransactions (65), version 0: state and partitions of transactions (KIP-664)."""

from __future__ import annotations

from barnabas.broker.coordinators.transactions import Transactions
from barnabas.broker.net.order import TRANSACTIONS
from barnabas.broker.registry import Context, api
from barnabas.broker.workers import Yielder
from barnabas.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse


@api(DescribeTransactionsRequest, DescribeTransactionsResponse, uses=TRANSACTIONS)
async def handle(
    context: Context, request: DescribeTransactionsRequest, transactions: Transactions
) -> DescribeTransactionsResponse:
    yielder = Yielder()
    found = []
    for state in transactions.coordinator.describe(request.transactional_ids):
        found.append(state)
        await yielder()
    return DescribeTransactionsResponse(transaction_states=found)
