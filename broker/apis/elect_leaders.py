"""ElectLeaders (43), versions 0-2 (KIP-183): the one replica of a partition leads it already.

Version 0: preferred leaders only. Version 1: an election type, preferred or unclean, and an error code for the whole
answer (KIP-460). Version 2: only the encoding is new (flexible).
"""

from __future__ import annotations

from barnabas.broker.net.order import METADATA
from barnabas.broker.partitions import Partitions
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import ALTER_CLUSTER
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED, UNCLEAN = 0, 1


@api(ElectLeadersRequest, ElectLeadersResponse, uses=METADATA)
def handle(context: Context, request: ElectLeadersRequest, partitions: Partitions) -> ElectLeadersResponse:
    if not context.may(ALTER_CLUSTER):
        return _refused(request, context.version)
    known = request.election_type in (PREFERRED, UNCLEAN)
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST,
        replica_election_results=[
            ReplicaElectionResult(
                asked.topic,
                [_judge(partitions, request.election_type, asked.topic, index) for index in asked.partitions],
            )
            for asked in request.topic_partitions or ()  # null asks for all partitions that need an election: none does
        ],
    )


def _judge(partitions: Partitions, kind: int, topic: str, index: int) -> PartitionResult:
    if kind not in (PREFERRED, UNCLEAN):
        return PartitionResult(index, ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}")
    if not partitions.exists(topic, index):
        return PartitionResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
    return PartitionResult(index, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


def _refused(request: ElectLeadersRequest, version: int) -> ElectLeadersResponse:
    """The answer to a client that may not elect; in version 0 only partitions have error codes."""
    code = ALTER_CLUSTER.refusal
    results = [
        ReplicaElectionResult(each.topic, [PartitionResult(index, code, None) for index in each.partitions])
        for each in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=code if version >= 1 else 0, replica_election_results=results)
