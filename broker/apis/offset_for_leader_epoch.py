"""OffsetForLeaderEpoch (23), versions 2-4: where a leader epoch ends (KIP-320).

Version 2: the leader epoch that the client knows is checked. Version 3: the follower that asks; there are none.
Version 4: only the encoding is new (flexible).
"""

from __future__ import annotations

from barnabas.broker.net.order import METADATA, RECORDS
from barnabas.broker.partitions import Partitions
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import CLUSTER_ACTION, DESCRIBE_TOPIC
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


@api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, uses=METADATA | RECORDS)
def handle(
    context: Context, request: OffsetForLeaderEpochRequest, partitions: Partitions
) -> OffsetForLeaderEpochResponse:
    topics = []
    is_replica = context.may(CLUSTER_ACTION, quiet=True)
    for topic in request.topics:
        answers = []
        refusal = ErrorCode.NONE if is_replica else context.refusal(DESCRIBE_TOPIC, topic.topic)
        for part in topic.partitions:
            try:
                if refusal:
                    raise KafkaError(refusal)
                vnode = partitions.led(topic.topic, part.partition)
                partitions.check_leader_epoch(vnode, part.current_leader_epoch)
                epoch, end = vnode.epoch_end_offset(part.leader_epoch)
                answers.append(EpochEndOffset(partition=part.partition, leader_epoch=epoch, end_offset=end))
            except KafkaError as error:
                answers.append(EpochEndOffset(error_code=error.code, partition=part.partition))
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)
