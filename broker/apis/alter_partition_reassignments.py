"""AlterPartitionReassignments (45), versions 0-1 (KIP-455): a partition goes to another node, with all its records.

Version 0: the replicas of each partition, exactly one; null cancels a move. Version 1: says whether the number of
replicas may change. The answer repeats this flag, but only one replica is accepted.
"""

from __future__ import annotations

from barnabas.broker.between.moves import Moves
from barnabas.broker.net.order import METADATA
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import ALTER_CLUSTER
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

_ONE = "A partition has one replica here: name one broker."


@api(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, uses=METADATA, changes=METADATA)
async def handle(
    context: Context, request: AlterPartitionReassignmentsRequest, moves: Moves
) -> AlterPartitionReassignmentsResponse:
    if not context.may(ALTER_CLUSTER):
        return _refused(request)
    answers: list[KafkaError | None] = []
    wanted: list[tuple[TopicPartition, int | None]] = []
    for topic in request.topics:
        for part in topic.partitions:
            one = part.replicas is None or len(part.replicas) == 1
            answers.append(None if one else KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, _ONE))
            if one:
                node = None if part.replicas is None else part.replicas[0]
                wanted.append(((topic.name, part.partition_index), node))
    found = iter(await moves.ask(wanted))
    judged = iter([next(found) if answer is None else answer for answer in answers])
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                topic.name, [_answer(part.partition_index, next(judged)) for part in topic.partitions]
            )
            for topic in request.topics
        ],
    )


def _answer(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(index, ErrorCode.NONE, None)
    why = None if error.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS else str(error)
    return ReassignablePartitionResponse(index, error.code, why)


def _refused(request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    code = ALTER_CLUSTER.refusal
    topics = [
        ReassignableTopicResponse(
            topic.name, [ReassignablePartitionResponse(each.partition_index, code, None) for each in topic.partitions]
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=None, responses=topics)
