"""WriteTxnMarkers (27), versions 1-2: markers as a coordinator on another broker, or an operator, writes them.

Kafka's tool uses it to abort a hanging transaction: one that is open in a partition and unknown to every coordinator.
The rules of markers hold here, too: a producer with a higher epoch is not touched, and an operator gets that error. For
another node a marker succeeds if the producer has nothing open: then the outcome is known in the partition.

Version 1: flexible. Version 2: the transaction version, by which a late marker is recognised (KIP-1228).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from barnabas.broker.coordinators.groups import Reply
from barnabas.broker.coordinators.transactions import Done, Transactions
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.order import METADATA, OFFSETS, RECORDS
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import ALTER_CLUSTER, CLUSTER_ACTION
from barnabas.broker.security.principals import NODE
from barnabas.groupcoord.transactions.state import V2
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.batch import Marker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


@api(WriteTxnMarkersRequest, WriteTxnMarkersResponse, uses=METADATA, changes=RECORDS | OFFSETS)
def handle(
    context: Context, request: WriteTxnMarkersRequest, transactions: Transactions
) -> WriteTxnMarkersResponse | DelayedResponse:
    allowed = context.may(ALTER_CLUSTER, quiet=True) or context.may(CLUSTER_ACTION)
    markers = transactions.markers
    write = markers.write_for_coordinator if context.principal == NODE else markers.write
    return _Writing(request, write if allowed else _refuse).reply.now_or_later()


def _refuse(where: TopicPartition, marker: Marker, done: Done, *, new_epoch: bool) -> None:
    done(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


class _Writing:
    """One request: the answer so far, and the number of markers that are not durable yet."""

    def __init__(self, request: WriteTxnMarkersRequest, write: Callable[..., None]) -> None:
        self.reply: Reply[WriteTxnMarkersResponse] = Reply()
        self._left = 1
        self._response = WriteTxnMarkersResponse(markers=[])
        for asked in request.markers:
            result = WritableTxnMarkerResult(producer_id=asked.producer_id, topics=[])
            self._response.markers.append(result)
            marker = Marker(asked.producer_id, asked.producer_epoch, asked.transaction_result, asked.coordinator_epoch)
            for topic in asked.topics:
                answers = [WritableTxnMarkerPartitionResult(index) for index in topic.partition_indexes]
                result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=answers))
                for at, index in enumerate(topic.partition_indexes):
                    self._left += 1
                    written = partial(self._written, answers, at)
                    write((topic.name, index), marker, written, new_epoch=asked.transaction_version >= V2)
        self._end_one()

    def _written(self, answers: list[WritableTxnMarkerPartitionResult], at: int, error: ErrorCode) -> None:
        answers[at] = WritableTxnMarkerPartitionResult(answers[at].partition_index, error)
        self._end_one()

    def _end_one(self) -> None:
        self._left -= 1
        if not self._left:
            self.reply(self._response)
