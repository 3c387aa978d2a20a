"""AddPartitionsToTxn (24), versions 0-5: partitions join a producer's transaction before it writes to them.

Up to version 3 producers ask for one transaction. If one of its partitions cannot be added, none is.

Version 0: all fields. Version 1: the same. Version 2: PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH.
Version 3: only the encoding is new (flexible).
Version 4: many transactions, and requests that only check whether partitions were added (KIP-890). Brokers send it.
Version 5: TRANSACTION_ABORTABLE is possible.
"""

from __future__ import annotations

from barnabas.broker.coordinators.groups import Reply
from barnabas.broker.coordinators.transactions import Transactions
from barnabas.broker.jobs.queries import Queries
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.order import METADATA, TRANSACTIONS
from barnabas.broker.partitions import Partitions
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import CLUSTER_ACTION, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from barnabas.broker.security.principals import NODE
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

BATCHED_SINCE = 4


@api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, uses=METADATA, changes=TRANSACTIONS)
def handle(
    context: Context,
    request: AddPartitionsToTxnRequest,
    transactions: Transactions,
    queries: Queries,
    partitions: Partitions,
) -> AddPartitionsToTxnResponse | DelayedResponse:
    of_node = context.principal == NODE
    claims = queries.secret.is_claimed
    if of_node:
        pass  # that node has checked the use of a streams driver's id
    elif claims(request.v3_and_below_transactional_id) or any(
        claims(each.transactional_id) for each in request.transactions
    ):
        return _refused(request)
    if context.version >= BATCHED_SINCE:
        if not context.may(CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(error_code=CLUSTER_ACTION.refusal)
    elif not context.may(WRITE_TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return _refused(request)
    else:
        denied = {t.name for t in request.v3_and_below_topics if not context.may(WRITE_TOPIC, t.name)}
        if denied:
            return _not_attempted(request, denied, partitions)
    reply: Reply[AddPartitionsToTxnResponse] = Reply()
    transactions.coordinator.add_partitions(request, version=context.version, reply=reply, of_node=of_node)
    return reply.now_or_later()


def _refused(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """The answer to a client that names an id of the streams driver."""
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    topics = [
        AddPartitionsToTxnTopicResult(t.name, [AddPartitionsToTxnPartitionResult(p, code) for p in t.partitions])
        for t in request.v3_and_below_topics
    ]
    return AddPartitionsToTxnResponse(error_code=code, results_by_topic_v3_and_below=topics)


def _not_attempted(
    request: AddPartitionsToTxnRequest, denied: set[str], partitions: Partitions
) -> AddPartitionsToTxnResponse:
    """The answer if the client may not write some of the topics: none is added."""

    def code(name: str, index: int) -> ErrorCode:
        if name in denied:
            return WRITE_TOPIC.refusal
        is_there = partitions.exists(name, index)
        return ErrorCode.OPERATION_NOT_ATTEMPTED if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    topics = [
        AddPartitionsToTxnTopicResult(
            t.name, [AddPartitionsToTxnPartitionResult(index, code(t.name, index)) for index in t.partitions]
        )
        for t in request.v3_and_below_topics
    ]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
