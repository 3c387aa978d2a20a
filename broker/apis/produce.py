"""Produce (0), versions 3-13: append one batch per partition.

The append happens at once, in the order of the connection's requests. With acks=all the answer leaves when the batch
is durable (or, under Kafka's page-cache policy, at once); with acks=1 after the write; with acks=0 there is none, and
an error closes the connection, as that is the only way to tell.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from broker.connection import Disconnected
from broker.metadata import INTERNAL_TOPICS
from broker.queries import QUERIES_TOPIC, WRITER_ID
from broker.registry import Context, Later, api
from storage.vnode import Origin, Vnode
from wire.compression import Bytes, Codec
from wire.errors import ErrorCode, KafkaError
from wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from wire.types import v

if TYPE_CHECKING:
    from broker.node import Node

ALL = -1
# Where a batch has the low byte of its attributes.
ATTRIBUTES_AT = 22


@api(ProduceRequest, ProduceResponse, advertised=v[0:13])
def handle(context: Context, request: ProduceRequest) -> ProduceResponse | Later | None:
    node, version, acks = context.node, context.version, request.acks
    refused: ErrorCode | None = None
    if acks not in (ALL, 0, 1):
        refused = ErrorCode.INVALID_REQUIRED_ACKS
    elif request.transactional_id is not None and request.transactional_id != WRITER_ID:
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED  # no coordinator gives out transactional ids yet
    by_driver = request.transactional_id is not None
    now_ms = time.time_ns() // 1_000_000
    topics = []
    waits: list[tuple[Vnode, int]] = []
    failed: ErrorCode | None = None
    for topic in request.topic_data:
        name = node.topic_name(topic.topic_id) if version >= 13 else topic.name
        answers = []
        for part in topic.partition_data:
            code, message = refused, None
            if code is None:
                vnode = node.partition(name, part.index)
                if vnode is None:
                    code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    try:
                        answers.append(_append(node, vnode, part, acks, now_ms, version, waits, by_driver))
                        continue
                    except KafkaError as error:
                        code, message = error.code, str(error)
            failed = code
            answers.append(PartitionProduceResponse(
                index=part.index, error_code=code, base_offset=-1, error_message=message if version >= 8 else None,
            ))  # fmt: skip
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    if acks == 0:
        if failed is not None:
            raise Disconnected(f"produce with acks=0 failed: {failed.name}")
        return None
    response = ProduceResponse(responses=topics)
    return Durable(node, response, waits) if waits else response


def _append(
    node: Node,
    vnode: Vnode,
    part: PartitionProduceData,
    acks: int,
    now_ms: int,
    version: int,
    waits: list[tuple[Vnode, int]],
    by_driver: bool,
) -> PartitionProduceResponse:
    if acks == ALL and vnode.topic in node.topics_without_enough_replicas:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "min.insync.replicas is above the one replica that there is")
    records: Bytes | None = part.records  # type: ignore[assignment]
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no record batch")
    closed = vnode.topic in node.queries.closed
    if closed != by_driver:
        raise _refused(node, vnode.topic)
    attributes = records[ATTRIBUTES_AT] if len(records) > ATTRIBUTES_AT else 0
    if attributes & 0x10:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch without a transactional id"
        )
    if version < 7 and attributes & 0x07 == Codec.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
    if closed:
        result = node.queries.append(vnode, records, now_ms)
    else:
        result = vnode.append(records, now_ms=now_ms, origin=Origin.CLIENT)
    if acks == ALL and vnode.high_watermark <= result.last_offset:
        waits.append((vnode, result.last_offset + 1))
    else:
        node.flusher.request(vnode)
    return PartitionProduceResponse(
        index=part.index, base_offset=result.base_offset, log_append_time_ms=result.append_time_ms,
        log_start_offset=result.log_start_offset,
    )  # fmt: skip


def _refused(node: Node, topic: str) -> KafkaError:
    """Why a client may not write this topic, or the streams driver not that one."""
    closed = topic in node.queries.closed
    if closed and topic not in INTERNAL_TOPICS:
        return KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is read-only: its records are the results of a query"
        )
    if closed and topic != QUERIES_TOPIC:
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "only the broker writes to an internal topic")
    return KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, f"{topic} and the transactional id do not go together"
    )


class Durable(Later):
    """The response once every batch is on disk; a partition whose fsync failed gets the error instead."""

    __slots__ = ("_left", "_node", "_response", "_waits")

    def __init__(self, node: Node, response: ProduceResponse, waits: list[tuple[Vnode, int]]) -> None:
        super().__init__()
        self._node, self._response, self._waits = node, response, waits
        self._left = len(waits)
        for vnode, end in waits:
            node.flusher.when_flushed(vnode, end, self._flushed)

    def _flushed(self) -> None:
        self._left -= 1
        if not self._left:
            self.finish(self._with_errors())

    def _with_errors(self) -> ProduceResponse:
        failed = {}
        for vnode, _ in self._waits:
            if vnode.error is not None:
                key = vnode.topic, vnode.partition
                deleted = self._node.vnodes.get(key) is not vnode
                failed[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if deleted else vnode.error.code
        if not failed:
            return self._response
        topics = []
        for topic in self._response.responses:
            name = topic.name or self._node.topic_name(topic.topic_id) or ""
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[
                PartitionProduceResponse(index=p.index, error_code=failed[name, p.index], base_offset=-1)
                if (name, p.index) in failed else p
                for p in topic.partition_responses
            ]))  # fmt: skip
        return ProduceResponse(responses=topics)
