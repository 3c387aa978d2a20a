"""ListPartitionReassignments (46), version 0: one node moves nothing, so there are none."""

from __future__ import annotations

from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_CLUSTER
from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, uses=METADATA)
def handle(context: Context, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    if not context.may(DESCRIBE_CLUSTER):
        return ListPartitionReassignmentsResponse(error_code=DESCRIBE_CLUSTER.refusal, error_message=None)
    return ListPartitionReassignmentsResponse(error_message=None)
