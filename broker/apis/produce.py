"""Produce (0), versions 3-13: validate and append one batch per partition.

batches -> looked at -> appended, in the order of the connection's requests -> durable -> answered

Most batches are looked at and appended at once. One that takes long (compressed and large, or many in one request) is
looked at in a thread; what follows on the connection waits for its append. With acks=all and acks=1 the answer leaves
when consumers see the batch: under the fsync policy when it is on disk, under Kafka's page-cache policy after the
write. With acks=0 there is no answer, and an error closes the connection, as that is the only way to tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import trio

from broker.connection import RECEIVE_BYTES, Disconnected
from broker.metadata import INTERNAL_TOPICS
from broker.order import METADATA, RECORDS
from broker.queries import QUERIES_TOPIC, WRITER_ID
from broker.registry import Context, Later, api
from storage.validation import RejectedRecords, TooHeavy, Valid, validate
from storage.vnode import Vnode
from wire.compression import Bytes, Codec
from wire.errors import ErrorCode, KafkaError
from wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from wire.types import v

if TYPE_CHECKING:
    from broker.node import Node

ALL = -1
# How long one request may look at its batches, or append them, before others have their turn.
HOLD_SECONDS = 0.002
# Where a batch has the low byte of its attributes.
ATTRIBUTES_AT = 22
RECORD_ERRORS_SINCE = 8
# Errors that are about the records, so that the log is known to be there.
ABOUT_RECORDS = (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)


@api(ProduceRequest, ProduceResponse, uses=METADATA, changes=RECORDS, advertised=v[0:13])
def handle(context: Context, request: ProduceRequest) -> ProduceResponse | Later | None:
    if request.acks not in (ALL, 0, 1):
        return _refuse_all(context, request, ErrorCode.INVALID_REQUIRED_ACKS)
    if request.transactional_id is not None and request.transactional_id != WRITER_ID:
        # No coordinator gives out transactional ids yet.
        return _refuse_all(context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    parts = [
        Part(context, request, topic, index)
        for topic in request.topic_data
        for index in range(len(topic.partition_data))
    ]
    now_ms = time.time_ns() // 1_000_000
    until = time.perf_counter() + HOLD_SECONDS
    for number, part in enumerate(parts):
        if part.look(now_ms, light=True) or (number and time.perf_counter() > until):
            return Slow(context, request, parts, now_ms)
    for part in parts:
        part.append(now_ms)
    return answer(context, request, parts)


class Part:
    """One partition of a request: the batch for it, what was found out about that, and what became of it."""

    __slots__ = (
        "_by_driver",
        "_node",
        "_version",
        "answer",
        "data",
        "end",
        "error",
        "index",
        "topic",
        "valid",
        "vnode",
    )

    def __init__(self, context: Context, request: ProduceRequest, topic: TopicProduceData, index: int) -> None:
        self._node, self._version = context.node, context.version
        self._by_driver = request.transactional_id is not None
        self.topic = topic
        self.index = topic.partition_data[index].index
        self.data: Bytes | None = topic.partition_data[index].records  # type: ignore[assignment]
        self.vnode: Vnode | None = None
        self.valid: Valid | None = None
        self.error: KafkaError | None = None
        self.answer = -1, -1, -1  # base offset, append time, log start offset
        self.end = 0
        try:
            self.vnode = self._writable(request.acks)
        except KafkaError as error:
            self.error = error

    @property
    def name(self) -> str | None:
        return self._node.topic_name(self.topic.topic_id) if self._version >= 13 else self.topic.name

    def _writable(self, acks: int) -> Vnode:
        """The partition, if this request may write to it."""
        node, name = self._node, self.name
        vnode = node.partition(name, self.index)
        if vnode is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(code, "no such partition")
        if acks == ALL and vnode.topic in node.topics_without_enough_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS, "min.insync.replicas is above the one replica that there is"
            )
        data = self.data
        if data is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "no record batch")
        if (vnode.topic in node.queries.closed) != self._by_driver:
            raise _refused(node, vnode.topic)
        attributes = data[ATTRIBUTES_AT] if len(data) > ATTRIBUTES_AT else 0
        if attributes & 0x10:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch without a transactional id"
            )
        if self._version < 7 and attributes & 0x07 == Codec.ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
        return vnode

    def look(self, now_ms: int, *, light: bool) -> bool:
        """Validate the batch; whether that would take too long here. May be called in a thread without `light`."""
        if self.vnode is None or self.error is not None or self.valid is not None or self._by_driver:
            return False
        assert self.data is not None
        try:
            self.valid = validate(self.data, self.vnode.rules, now_ms, light=light)
        except TooHeavy:
            return True
        except KafkaError as error:
            self.error = error
        return False

    def keep_data(self) -> None:
        """Have the batch outlive this turn. A large frame is kept by its connection, a small one is not."""
        if self.data is not None and len(self.data) <= RECEIVE_BYTES:
            self.data = bytes(self.data)
            self.valid = None  # it may be of the old bytes

    def append(self, now_ms: int) -> None:
        if self.vnode is None or self.error is not None:
            return
        try:
            if self._by_driver:
                assert self.data is not None
                result = self._node.queries.append(self.vnode, self.data, now_ms)
            else:
                assert self.valid is not None
                result = self.vnode.append_valid(self.valid, now_ms=now_ms)
        except KafkaError as error:
            self.error = error
        else:
            self.answer = result.base_offset, result.append_time_ms, result.log_start_offset
            self.end = result.last_offset + 1
        self.valid = self.data = None

    def response(self) -> PartitionProduceResponse:
        error = self.error
        base_offset, append_time_ms, log_start_offset = self.answer
        if error is None:
            return PartitionProduceResponse(
                index=self.index, base_offset=base_offset, log_append_time_ms=append_time_ms,
                log_start_offset=log_start_offset,
            )  # fmt: skip
        told = self._version >= RECORD_ERRORS_SINCE
        if self.vnode is not None and error.code in ABOUT_RECORDS and self.vnode.error is None:
            log_start_offset = self.vnode.log_start_offset
        records = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in (error.records if told and isinstance(error, RejectedRecords) else ())
        ]
        return PartitionProduceResponse(
            index=self.index, error_code=error.code, base_offset=-1, log_start_offset=log_start_offset,
            record_errors=records, error_message=error.message if told else None,
        )  # fmt: skip


def answer(context: Context, request: ProduceRequest, parts: list[Part]) -> ProduceResponse | Later | None:
    """What the client is told once all is appended: now, or when it is durable."""
    node, acks = context.node, request.acks
    failed = next((part.error for part in reversed(parts) if part.error is not None), None)
    if acks == 0 and failed is not None:
        raise Disconnected(f"produce with acks=0 failed: {failed.code.name}")
    waits = []
    for part in parts:
        vnode = part.vnode
        if vnode is None or not part.end:
            continue
        if vnode.high_watermark < part.end:
            waits.append(part)
        else:
            node.flusher.request(vnode)
    if waits:
        return Durable(node, waits, lambda: response_of(request, parts))
    return response_of(request, parts)


def response_of(request: ProduceRequest, parts: list[Part]) -> ProduceResponse | None:
    """The response, by topic as in the request; None with acks=0."""
    if request.acks == 0:
        return None
    left: Iterator[Part] = iter(parts)
    return ProduceResponse(responses=[
        TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id,
            partition_responses=[next(left).response() for _ in topic.partition_data],
        )
        for topic in request.topic_data
    ])  # fmt: skip


def _refuse_all(context: Context, request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(responses=[
        TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[
            PartitionProduceResponse(index=part.index, error_code=code, base_offset=-1)
            for part in topic.partition_data
        ])
        for topic in request.topic_data
    ])  # fmt: skip


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
    """The response once consumers see every batch; a partition whose fsync failed gets the error instead."""

    __slots__ = ("_left", "_node", "_response", "_waits")

    def __init__(self, node: Node, waits: list[Part], response: Callable[[], ProduceResponse | None]) -> None:
        super().__init__()
        self._node, self._waits, self._response = node, waits, response
        self._left = len(waits)
        for part in waits:
            assert part.vnode is not None
            node.flusher.when_flushed(part.vnode, part.end, self._flushed)

    def _flushed(self) -> None:
        self._left -= 1
        if self._left:
            return
        for part in self._waits:
            vnode = part.vnode
            assert vnode is not None
            if vnode.error is not None:
                deleted = self._node.vnodes.get((vnode.topic, vnode.partition)) is not vnode
                part.error = (
                    KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
                    if deleted
                    else vnode.error
                )
        self.finish(self._response())


class Slow(Later):
    """A request whose batches take long to look at. It goes on when its client has left: the batches were sent."""

    __slots__ = ("_context", "_now_ms", "_parts", "_request", "_then")

    def __init__(self, context: Context, request: ProduceRequest, parts: list[Part], now_ms: int) -> None:
        super().__init__(applied=False)
        self._context, self._request, self._parts, self._now_ms = context, request, parts, now_ms
        self._then: Durable | None = None
        for part in parts:
            part.keep_data()
        context.node.nursery.start_soon(self._run)

    async def _run(self) -> None:
        node, parts = self._context.node, self._parts
        try:
            await trio.to_thread.run_sync(self._look, limiter=node.validations)
            until = time.perf_counter() + HOLD_SECONDS
            for part in parts:
                part.append(self._now_ms)
                if time.perf_counter() > until:
                    await trio.lowlevel.checkpoint()
                    until = time.perf_counter() + HOLD_SECONDS
            then = answer(self._context, self._request, parts)
        except Exception as error:
            self.apply()
            self.fail(error)
            return
        self.apply()
        if isinstance(then, Durable):
            self._then = then
            then.on_finish = lambda: self.finish(then.message)
        else:
            assert not isinstance(then, Later)
            self.finish(then)

    def _look(self) -> None:
        for part in self._parts:
            part.look(self._now_ms, light=False)
