"""AlterReplicaLogDirs (34), versions 1-2 (KIP-113): there is one directory, where every replica is already.

Version 1: the first that is served. Version 2: only the encoding is new (flexible).
"""

from __future__ import annotations

import os

from barnabas.broker.net.order import METADATA
from barnabas.broker.partitions import Partitions
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import ALTER_CLUSTER
from barnabas.broker.settings.config import BrokerConfig
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


@api(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, uses=METADATA)
def handle(
    context: Context, request: AlterReplicaLogDirsRequest, partitions: Partitions, config: BrokerConfig
) -> AlterReplicaLogDirsResponse:
    refusal = context.refusal(ALTER_CLUSTER)
    own = os.path.abspath(config.data_dir)

    def judge(path: str, topic: str, index: int) -> ErrorCode:
        if refusal:
            return refusal
        if path != own:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if partitions.get(topic, index):
            return ErrorCode.NONE
        # Another node leads the partition, or it is moving here: tools ask again until it has arrived.
        known = partitions.exists(topic, index)
        return ErrorCode.REPLICA_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic.name,
                [AlterReplicaLogDirPartitionResult(i, judge(each.path, topic.name, i)) for i in topic.partitions],
            )
            for each in request.dirs
            for topic in each.topics
        ]
    )
