"""DeleteRecords (21), versions 0-2: raises the log start offset; readers no longer get what lies before it (KIP-107).

Version 0: all fields; offset -1 is the high watermark. Version 1: the same.
Version 2: only the encoding is new (flexible).
"""

from __future__ import annotations

import trio

from barnabas.broker.net.order import METADATA, RECORDS
from barnabas.broker.partitions import Partitions
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DELETE_TOPIC
from barnabas.storage.data_dir import DataDir
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import OFFSETS_TOPIC
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1


@api(DeleteRecordsRequest, DeleteRecordsResponse, uses=METADATA | RECORDS, changes=RECORDS)
async def handle(
    context: Context, request: DeleteRecordsRequest, partitions: Partitions, data_dir: DataDir
) -> DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        results = []
        refusal = context.refusal(DELETE_TOPIC, topic.name)
        for part in topic.partitions:
            try:
                if refusal:
                    raise KafkaError(refusal)
                start = _delete(partitions, topic.name, part.partition_index, part.offset)
                results.append(DeleteRecordsPartitionResult(part.partition_index, start, ErrorCode.NONE))
            except KafkaError as error:
                results.append(DeleteRecordsPartitionResult(part.partition_index, -1, error.code))
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    if all(part.error_code for topic in topics for part in topic.partitions):
        return DeleteRecordsResponse(topics=topics)
    try:
        with trio.CancelScope(shield=True):
            await data_dir.checkpoint()  # a restart must not bring back deleted records
    except KafkaError as error:
        return _failed(request, error)
    return DeleteRecordsResponse(topics=topics)


def _failed(request: DeleteRecordsRequest, error: KafkaError) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[DeleteRecordsPartitionResult(p.partition_index, -1, error.code) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(partitions: Partitions, topic: str, partition: int, offset: int) -> int:
    vnode = partitions.led(topic, partition)
    if not vnode.config.deletes:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "cleanup.policy of the topic does not contain delete")
    if topic == OFFSETS_TOPIC:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "records of internal topics cannot be deleted")
    wanted = vnode.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= wanted <= vnode.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {wanted} is beyond the high watermark")
    vnode.truncate_prefix(wanted)
    return vnode.log_start_offset
