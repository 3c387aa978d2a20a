"""ListOffsets (2), versions 1-11: offsets by timestamp, and by special values. There is no remote tier here, so a
request about one finds nothing (offset -1), as in Kafka without it. Another node (it has a replica id) gets the end of
the log.

Version 1: one offset with its timestamp (KIP-79); -1 is the end, -2 the start of the log.
Versions 2-3: isolation level: with read_committed, the end is the last stable offset, and no record behind it is found.
Versions 4-6: the leader epoch, checked in the request and told in the answer (KIP-320).
Version 7: -3, the largest timestamp (KIP-734). Version 8: -4, the start of the local log (KIP-405).
Version 9: -5, the last offset in the remote tier (KIP-1005). Version 10: a timeout for it (KIP-1075), unused.
Version 11: -6, the first offset not yet in the remote tier (KIP-1023).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextlib import suppress

from barnabas.broker.net.order import METADATA, RECORDS
from barnabas.broker.partitions import Partitions
from barnabas.broker.reading.time_lookup import MAX_TIMESTAMP, find_time
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import DESCRIBE_TOPIC
from barnabas.broker.security.principals import NODE
from barnabas.broker.workers import Workers, Yielder
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -4, -5, -6
READ_COMMITTED = 1
# For more partitions, other tasks run in between: to open a log takes 0.1 ms.
OPENED_AT_ONCE = 50
# The version that brought each special value.
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


@api(ListOffsetsRequest, ListOffsetsResponse, uses=METADATA | RECORDS)
def handle(
    context: Context, request: ListOffsetsRequest, partitions: Partitions, workers: Workers
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    refused = {topic.name for topic in request.topics if not context.may(DESCRIBE_TOPIC, topic.name)}
    by_time = [
        part for topic in request.topics if topic.name not in refused for part in topic.partitions if _is_by_time(part)
    ]
    if by_time or sum(len(topic.partitions) for topic in request.topics) > OPENED_AT_ONCE:
        return _answer_slowly(context, request, partitions, workers, refused)
    return _answer(context, request, partitions, {}, refused)


def _is_by_time(part: ListOffsetsPartition) -> bool:
    return part.timestamp >= 0 or part.timestamp == MAX_TIMESTAMP


async def _answer_slowly(
    context: Context, request: ListOffsetsRequest, partitions: Partitions, workers: Workers, refused: set[str]
) -> ListOffsetsResponse:
    """Open the logs that are closed, and find offsets by time. A thread reads the records, one partition after the
    other."""
    yielder = Yielder()
    found: dict[tuple[str, int], tuple[int, int] | KafkaError | None] = {}
    for topic in request.topics:
        for part in topic.partitions:
            key = topic.name, part.partition_index
            vnode = partitions.get(*key)
            if vnode is not None and not vnode.loaded and topic.name not in refused:
                with suppress(KafkaError):  # the answer has the error
                    vnode.high_watermark  # noqa: B018  (it opens the log)
                await yielder()
            if _is_by_time(part) and key not in found and topic.name not in refused:
                try:
                    led = partitions.led(*key)
                    found[key] = await find_time(workers, context.client, led, part.timestamp, context.paid)
                except KafkaError as error:
                    found[key] = error
    return _answer(context, request, partitions, found, refused)


def _answer(
    context: Context,
    request: ListOffsetsRequest,
    partitions: Partitions,
    times: Mapping[tuple[str, int], tuple[int, int] | KafkaError | None],
    refused: set[str],
) -> ListOffsetsResponse:
    """`times` has the results of the look-ups by time; `refused` are topics."""
    topics = []
    seen: set[tuple[str, int]] = set()
    for topic in request.topics:
        answers = []
        for part in topic.partitions:
            try:
                if topic.name in refused:
                    raise KafkaError(DESCRIBE_TOPIC.refusal)
                if (topic.name, part.partition_index) in seen:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "a partition is named twice")
                seen.add((topic.name, part.partition_index))
                answers.append(_find(context, request, partitions, topic.name, part, times))
            except KafkaError as error:
                answers.append(
                    ListOffsetsPartitionResponse(partition_index=part.partition_index, error_code=error.code)
                )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _find(
    context: Context,
    request: ListOffsetsRequest,
    partitions: Partitions,
    topic: str,
    part: ListOffsetsPartition,
    times: Mapping[tuple[str, int], tuple[int, int] | KafkaError | None],
) -> ListOffsetsPartitionResponse:
    vnode = partitions.led(topic, part.partition_index)
    partitions.check_leader_epoch(vnode, part.current_leader_epoch)
    asked = part.timestamp
    if asked < 0 and (asked < EARLIEST_PENDING_UPLOAD or context.version < SINCE.get(asked, 0)):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {asked} in version {context.version}")
    found: tuple[int, int] | KafkaError | None
    found = -1, -1
    end = vnode.last_stable_offset if request.isolation_level == READ_COMMITTED else vnode.high_watermark
    if request.replica_id >= 0 and context.principal == NODE:
        end = vnode.log_end_offset
    if asked == LATEST:
        found = end, -1
    elif asked in (EARLIEST, EARLIEST_LOCAL):
        found = vnode.log_start_offset, -1
    elif _is_by_time(part):
        found = times[topic, part.partition_index]
        if isinstance(found, KafkaError):
            raise found
        if found is None or found[0] >= end:  # there is none, or this reader may not see it yet
            found = -1, -1
    offset, timestamp = found
    epoch = vnode.epoch_of(offset) if offset >= 0 else -1
    return ListOffsetsPartitionResponse(
        partition_index=part.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch if context.version >= 4 else -1,
    )
