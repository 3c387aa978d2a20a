"""ListPartitionReassignments (46), version 0: one node moves nothing, so there are none."""

from __future__ import annotations

from broker.order import METADATA
from broker.registry import Context, api
from wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, uses=METADATA)
def handle(context: Context, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
