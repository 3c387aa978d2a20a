"""ListPartitionReassignments (46), version 0: partitions that go from one node to another (KIP-455)."""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.net.large import LargeResponse
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_CLUSTER
from barnabas.broker.workers import Yielder
from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


@api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, uses=METADATA)
def handle(
    context: Context, request: ListPartitionReassignmentsRequest, metadata: MetadataImage
) -> ListPartitionReassignmentsResponse | Awaitable[LargeResponse]:
    if not context.may(DESCRIBE_CLUSTER):
        return ListPartitionReassignmentsResponse(error_code=DESCRIBE_CLUSTER.refusal, error_message=None)
    if not metadata.moves:
        return ListPartitionReassignmentsResponse(error_message=None)
    return _list(request, metadata)


async def _list(request: ListPartitionReassignmentsRequest, metadata: MetadataImage) -> LargeResponse:
    """All partitions may be moving, so other tasks run in between."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
    found: dict[str, list[OngoingPartitionReassignment]] = {}
    yielder = Yielder()
    for (topic_id, index), (source, target) in list(metadata.moves.items()):
        topic = metadata.by_id.get(topic_id)  # it may be deleted meanwhile
        if topic is not None and (wanted is None or (topic.name, index) in wanted):
            parts = found.setdefault(topic.name, [])
            parts.append(OngoingPartitionReassignment(index, [source, target], [target], [source]))
        await yielder()
    topics = [OngoingTopicReassignment(name, parts) for name, parts in found.items()]
    return LargeResponse(ListPartitionReassignmentsResponse(error_message=None, topics=topics))
