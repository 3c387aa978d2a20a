"""ListTransactions (66), versions 0-2: transactional ids with their producers and states.

Version 0: filters by state and producer id (KIP-664). Version 1: by duration (KIP-994).
Version 2: by a regular expression, of RE2's syntax (KIP-1152).
"""

from __future__ import annotations

from barnabas.broker.coordinators.transactions import Transactions
from barnabas.broker.net.large import LargeResponse
from barnabas.broker.net.order import TRANSACTIONS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_TRANSACTIONAL_ID
from barnabas.broker.workers import Yielder
from barnabas.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.wire.types import replace


@api(ListTransactionsRequest, ListTransactionsResponse, uses=TRANSACTIONS)
async def handle(context: Context, request: ListTransactionsRequest, transactions: Transactions) -> LargeResponse:
    yielder = Yielder()
    listing = transactions.coordinator.list(request)
    answer = next(listing)
    for answer in listing:  # noqa: B007
        await yielder()
    shown = []
    for each in answer.transaction_states:
        if context.may(DESCRIBE_TRANSACTIONAL_ID, each.transactional_id, quiet=True):
            shown.append(each)
        await yielder()
    return LargeResponse(replace(answer, transaction_states=shown))
