"""AlterPartitionReassignments (45), versions 0-1 (KIP-455): a partition moves to where it is, and nowhere else.

Version 0: the replicas of each partition; null gives up a move, and there is none under way.
Version 1: says whether the number of replicas may change. The flag is given back; only one replica is accepted anyway.
"""

from __future__ import annotations

from barnabas.broker.identity import Identity
from barnabas.broker.net.order import METADATA
from barnabas.broker.partitions import Partitions
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import ALTER_CLUSTER
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)


@api(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, uses=METADATA)
def handle(
    context: Context, request: AlterPartitionReassignmentsRequest, partitions: Partitions, identity: Identity
) -> AlterPartitionReassignmentsResponse:
    if not context.may(ALTER_CLUSTER):
        return _refused(request)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                topic.name, [_answer(partitions, identity, topic, part) for part in topic.partitions]
            )
            for topic in request.topics
        ],
    )


def _refused(request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    code = ALTER_CLUSTER.refusal
    topics = [
        ReassignableTopicResponse(
            topic.name, [ReassignablePartitionResponse(each.partition_index, code, None) for each in topic.partitions]
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=None, responses=topics)


def _answer(
    partitions: Partitions, identity: Identity, topic: ReassignableTopic, asked: ReassignablePartition
) -> ReassignablePartitionResponse:
    code, why = _judge(partitions, identity, topic.name, asked.partition_index, asked.replicas)
    return ReassignablePartitionResponse(asked.partition_index, code, why)


def _judge(
    partitions: Partitions, identity: Identity, name: str, index: int, replicas: list[int] | None
) -> tuple[ErrorCode, str | None]:
    if not partitions.exists(name, index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name[:300]}:{index}."
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    if replicas != [identity.node_id]:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"This cluster has only broker {identity.node_id}."
    return ErrorCode.NONE, None
