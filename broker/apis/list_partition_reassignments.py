"""ListPartitionReassignments (46), version 0: partitions that go from one node to another (KIP-455)."""

from __future__ import annotations

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_CLUSTER
from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


@api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, uses=METADATA)
def handle(
    context: Context, request: ListPartitionReassignmentsRequest, metadata: MetadataImage
) -> ListPartitionReassignmentsResponse:
    if not context.may(DESCRIBE_CLUSTER):
        return ListPartitionReassignmentsResponse(error_code=DESCRIBE_CLUSTER.refusal, error_message=None)
    wanted = None
    if request.topics is not None:
        wanted = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
    found: dict[str, list[OngoingPartitionReassignment]] = {}
    for (topic_id, index), (source, target) in metadata.moves.items():
        name = metadata.by_id[topic_id].name
        if wanted is None or (name, index) in wanted:
            found.setdefault(name, []).append(OngoingPartitionReassignment(index, [source, target], [target], [source]))
    topics = [OngoingTopicReassignment(name, parts) for name, parts in found.items()]
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)
