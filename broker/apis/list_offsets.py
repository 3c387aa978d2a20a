"""ListOffsets (2), versions 1-11: offsets by timestamp, and the special values of KIP-79, KIP-734, KIP-405, KIP-1005
and KIP-1023. There is no remote tier here, so what asks about one finds nothing (offset -1), as in Kafka without it.
"""

from __future__ import annotations

from broker.order import METADATA, RECORDS
from broker.registry import Context, api
from broker.replicas import check_leader_epoch
from storage.vnode import Vnode
from wire.errors import ErrorCode, KafkaError
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
# The version that brought each special value.
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


@api(ListOffsetsRequest, ListOffsetsResponse, uses=METADATA | RECORDS)
def handle(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    topics = []
    seen: set[tuple[str, int]] = set()
    for topic in request.topics:
        answers = []
        for part in topic.partitions:
            try:
                if (topic.name, part.partition_index) in seen:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "a partition is named twice")
                seen.add((topic.name, part.partition_index))
                answers.append(_find(context, request, topic.name, part))
            except KafkaError as error:
                answers.append(
                    ListOffsetsPartitionResponse(partition_index=part.partition_index, error_code=error.code)
                )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _find(
    context: Context, request: ListOffsetsRequest, topic: str, part: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    vnode = context.node.partition(topic, part.partition_index)
    if vnode is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
    check_leader_epoch(context.node, vnode, part.current_leader_epoch)
    asked = part.timestamp
    if asked < 0 and (asked < EARLIEST_PENDING_UPLOAD or context.version < SINCE.get(asked, 0)):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {asked} in version {context.version}")
    offset, timestamp = _look_up(vnode, asked, request.isolation_level)
    epoch = vnode.epoch_of(offset) if offset >= 0 else -1
    return ListOffsetsPartitionResponse(
        partition_index=part.partition_index, timestamp=timestamp, offset=offset,
        leader_epoch=epoch if context.version >= 4 else -1,
    )  # fmt: skip


def _look_up(vnode: Vnode, asked: int, isolation: int) -> tuple[int, int]:
    """(offset, timestamp); -1 for what is not found or does not apply."""
    if asked == LATEST:
        return (vnode.last_stable_offset if isolation == 1 else vnode.high_watermark), -1
    if asked in (EARLIEST, EARLIEST_LOCAL):
        return vnode.log_start_offset, -1
    if asked in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1
    found = vnode.max_timestamp_offset() if asked == MAX_TIMESTAMP else vnode.offset_for_timestamp(asked)
    if found is None or found[0] >= vnode.high_watermark:
        return -1, -1
    return found
