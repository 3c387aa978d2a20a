"""DescribeProducers (61), version 0: the producers that partitions remember, with their open transactions (KIP-664).

The search for a hanging transaction begins here. If no coordinator knows the transaction, an operator ends it with a
marker (WriteTxnMarkers), as `kafka-transactions.sh abort` does.
"""

from __future__ import annotations

from collections.abc import Awaitable

from barnabas.broker.net.large import LargeResponse
from barnabas.broker.net.order import METADATA, RECORDS
from barnabas.broker.partitions import Partitions
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import READ_TOPIC
from barnabas.broker.workers import Yielder
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

# One answer describes about this many producers (10 MB): the partition that passes the limit is complete.
MOST_PRODUCERS = 200_000


@api(DescribeProducersRequest, DescribeProducersResponse, uses=METADATA | RECORDS)
def handle(context: Context, request: DescribeProducersRequest, partitions: Partitions) -> Awaitable[LargeResponse]:
    return _describe(context, request, partitions)


async def _describe(context: Context, request: DescribeProducersRequest, partitions: Partitions) -> LargeResponse:
    yielder = Yielder()
    seen: set[tuple[str, int]] = set()
    left = MOST_PRODUCERS
    topics = []
    for topic in request.topics:
        answers = []
        refusal = context.refusal(READ_TOPIC, topic.name)
        for index in topic.partition_indexes:
            await yielder()
            if refusal:
                answers.append(PartitionResponse(partition_index=index, error_code=refusal, error_message=None))
                continue
            answers.append(_partition(partitions, topic.name, index, seen, left))
            left -= len(answers[-1].active_producers)
        topics.append(TopicResponse(name=topic.name, partitions=answers))
    return LargeResponse(DescribeProducersResponse(topics=topics))


def _partition(
    partitions: Partitions, topic: str, index: int, seen: set[tuple[str, int]], left: int
) -> PartitionResponse:
    try:
        if (topic, index) in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a partition is named twice")
        seen.add((topic, index))
        if left <= 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"more than {MOST_PRODUCERS} producers: name fewer partitions")
        vnode = partitions.led(topic, index)
        return PartitionResponse(
            partition_index=index,
            active_producers=[
                ProducerState(
                    producer_id=producer_id,
                    producer_epoch=producer.epoch,
                    last_sequence=producer.batches[-1].last_sequence if producer.batches else -1,
                    last_timestamp=producer.timestamp,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=producer.first_open_offset,
                )
                for producer_id, producer in vnode.active_producers()
            ],
        )
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
