"""Produce (0), versions 3-13: validate and append one batch per partition.

batches -> validated -> appended, in the order of the connection's requests -> durable -> answered

Most batches are validated and appended at once. If that takes long (large compressed batches, or many in one request),
a thread validates them, and later requests of the connection wait for their append. With acks=all and acks=1 the answer
leaves when consumers see the batch: under the fsync policy when it is on disk, under Kafka's page-cache policy after
the write. With acks=0 there is no answer; an error closes the connection, as that is the only way to report it.

A transactional batch is accepted if its partition belongs to the producer's transaction. Up to version 11 the producer
has added it; from version 12 on it is added here, and its records wait until that is durable (KIP-890). If another node
coordinates the transaction, it is asked before the first batch in a partition (`broker.coordinators.verifying`).

Version 3: message format 2, and a transactional id. The streams driver's own id belongs to no transaction.
Version 4: the same. Versions 5-6: the answer has the log start offset. Version 7: zstd is accepted (KIP-110).
Version 8: the answer names the records that a batch is refused for, and says why (KIP-467).
Version 9: flexible. Version 10: NOT_LEADER_OR_FOLLOWER says who leads, and at which address (KIP-951).
Version 11: TRANSACTION_ABORTABLE; before, INVALID_TXN_STATE (KIP-890). Version 12: partitions are added (KIP-890).
Version 13: topics by id; an unknown one is UNKNOWN_TOPIC_ID (KIP-516).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.broker.clock import Clock
from barnabas.broker.coordinators.transactions import Transactions, told_to_writer
from barnabas.broker.coordinators.verifying import Codes, Question, Verifying
from barnabas.broker.jobs.owners import Owners
from barnabas.broker.jobs.queries import Queries
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.errors import Disconnected
from barnabas.broker.net.framing import RECEIVE_BYTES
from barnabas.broker.net.order import METADATA, RECORDS, TRANSACTIONS
from barnabas.broker.nodes import Nodes
from barnabas.broker.partitions import Partitions
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from barnabas.broker.workers import Workers, Yielder
from barnabas.groupcoord.log.store import told
from barnabas.groupcoord.transactions.state import V2
from barnabas.storage.flusher import Flusher
from barnabas.storage.validation import RejectedRecords, TooHeavy, Valid, validate
from barnabas.storage.vnode import AppendResult, Vnode
from barnabas.wire.aliases import BytesLike, TopicPartition
from barnabas.wire.batch import HEADER_SIZE, parse_header
from barnabas.wire.compression import CompressionType
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import INTERNAL_TOPICS, QUERIES_TOPIC
from barnabas.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.wire.queries.writer import WRITER_ID
from barnabas.wire.types import v

ALL = -1
# How long one request may validate or append its batches before others have their turn.
HOLD_SECONDS = 0.002
# The position of the low byte of a batch's attributes.
ATTRIBUTES_AT = 22
TRANSACTIONAL = 0x10
RECORD_ERRORS_SINCE = 8
LEADERS_SINCE = 10
#: The versions with TRANSACTION_ABORTABLE, and with partitions added to the transaction.
ABORTABLE_SINCE, ADDS_SINCE = 11, 12
# Errors about the records, which show that the log exists.
ABOUT_RECORDS = (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)
#: Stands for an answer that does not exist yet.
PENDING = PartitionProduceResponse()


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a broker that producing uses."""

    partitions: Partitions
    nodes: Nodes
    queries: Queries
    owners: Owners
    transactions: Transactions
    flusher: Flusher
    workers: Workers
    clock: Clock


@api(ProduceRequest, ProduceResponse, uses=METADATA | TRANSACTIONS, changes=RECORDS, advertised=v[0:13])
def handle(context: Context, request: ProduceRequest, parts: Parts) -> ProduceResponse | DelayedResponse | None:
    refusal: KafkaError | None = None
    if request.acks not in (ALL, 0, 1):
        refusal = KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    elif request.transactional_id is not None and parts.queries.secret.is_claimed(request.transactional_id):
        refusal = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif context.connection.authorizer is not None and not _may_write_transactions(context, request, parts):
        refusal = KafkaError(WRITE_TRANSACTIONAL_ID.refusal)
    return Producing(context, request, refusal, parts).begin(request)


def _is_of_driver(transactional_id: str | None, parts: Parts) -> bool:
    """Whether the streams driver asks and has proved it: no other client may write its topics."""
    if transactional_id is None or not transactional_id.startswith(WRITER_ID):
        return False
    return not parts.queries.secret.is_claimed(transactional_id)


def _may_write_transactions(context: Context, request: ProduceRequest, parts: Parts) -> bool:
    """Whether a client may write the transactional records in its request, if there are any."""
    name = request.transactional_id
    if _is_of_driver(name, parts):
        return True
    batches: Iterable[BytesLike | None] = (
        part.records  # type: ignore[misc]
        for topic in request.topic_data
        for part in topic.partition_data
    )
    if not any(data and _is_transactional(data) for data in batches):
        return True
    return name is not None and context.may(WRITE_TRANSACTIONAL_ID, name)


class ProducerOf(NamedTuple):
    """The producer of a transactional batch, and its transactional id."""

    transactional_id: str
    producer_id: int
    epoch: int


def _producer_of(transactional_id: str, data: BytesLike) -> ProducerOf:
    header = parse_header(data)
    return ProducerOf(transactional_id, header.producer_id, header.producer_epoch)


def _is_transactional(data: BytesLike) -> bool:
    return len(data) >= HEADER_SIZE and bool(data[ATTRIBUTES_AT] & TRANSACTIONAL)


class RequestPartition(NamedTuple):
    """A partition as the request names it, the batch for it, and the place of its answer."""

    name: str | None
    partition: int
    data: BytesLike | None
    answers: list[PartitionProduceResponse]
    at: int


class PendingAppend(NamedTuple):
    """The same, for a partition that exists."""

    vnode: Vnode
    data: BytesLike
    answers: list[PartitionProduceResponse]
    at: int


class PendingFlush(NamedTuple):
    """A batch that consumers do not see yet, where it ends, and the place of its answer."""

    vnode: Vnode
    end: int
    answers: list[PartitionProduceResponse]
    at: int


def kept(data: BytesLike) -> BytesLike:
    """A batch that outlives this turn. A connection keeps a large frame; a small one must be copied."""
    return bytes(data) if len(data) <= RECEIVE_BYTES else data


class Producing:
    """One request: the appended batches, those still to be validated, and the answers so far.

    The request itself is released as soon as possible: memory that is reused at once is faster than fresh memory.
    """

    __slots__ = (
        "_acks",
        "_by_driver",
        "_denied",
        "_leaders",
        "_now_ms",
        "_parts",
        "_refusal",
        "_transactional_id",
        "_version",
        "context",
        "failed",
        "not_added",
        "rest",
        "todo",
        "topics",
        "verifying",
        "waits",
    )

    def __init__(self, context: Context, request: ProduceRequest, refusal: KafkaError | None, parts: Parts) -> None:
        self._parts = parts
        self._version, self._acks = context.version, request.acks
        self.context = context
        self._refusal = refusal
        transactional_id = request.transactional_id
        self._by_driver = transactional_id is not None and parts.queries.secret.proves(transactional_id)
        if transactional_id is not None and refusal is None and not self._by_driver:
            self._transactional_id: str | None = parts.queries.secret.named(transactional_id)
        else:
            self._transactional_id = None
        self._denied: Collection[str] = ()
        if context.connection.authorizer is not None and not _is_of_driver(transactional_id, parts):
            self._denied = self._topics_denied(request)
        elif context.connection.authorizer is not None:
            self._denied = self._results_denied(request)
        self._now_ms = parts.clock.wall_ms()
        #: Nodes that lead the partitions not led here.
        self._leaders: frozenset[int] = frozenset()
        self.topics: list[TopicProduceResponse] = []
        #: Batches that must wait for earlier ones.
        self.rest: list[RequestPartition] = []
        #: Batches whose validation would take too long here.
        self.todo: list[PendingAppend] = []
        self.waits: list[PendingFlush] = []
        self.failed: KafkaError | None = None
        #: Partitions that could not be added to the transaction.
        self.not_added: dict[TopicPartition, ErrorCode] = {}
        #: Set if another node coordinates the transaction.
        self.verifying: Verifying | None = None

    def _topics_denied(self, request: ProduceRequest) -> set[str]:
        """The topics of a request that the client may not write."""
        return {name for name in self._names(request) if not self.context.may(WRITE_TOPIC, name)}

    def _results_denied(self, request: ProduceRequest) -> set[str]:
        """The topics in a request of the driver whose owners lack the rights for what the driver does for them."""
        return {name for name in self._names(request) if self._parts.owners.problem(name) is not None}

    def _names(self, request: ProduceRequest) -> set[str]:
        by_id, name_of = self._version >= 13, self._parts.partitions.topic_name
        names = {name_of(topic.topic_id) if by_id else topic.name for topic in request.topic_data}
        return {name for name in names if name is not None}

    def begin(self, request: ProduceRequest) -> ProduceResponse | DelayedResponse | None:
        """Append the batches that can be appended at once."""
        adds: dict[ProducerOf, set[TopicPartition]] = {}
        if self._transactional_id is not None and self._refusal is None:
            self.verifying = self._to_verify(request, self._transactional_id)
            if self.verifying is None and self._version >= ADDS_SINCE:
                adds = self._adds(request, self._transactional_id)
        waits = adds or (self.verifying is not None and self.verifying.places)
        until = 0.0
        for topic in request.topic_data:
            name = self._parts.partitions.topic_name(topic.topic_id) if self._version >= 13 else topic.name
            answers: list[PartitionProduceResponse] = []
            self.topics.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
            for at, part in enumerate(topic.partition_data):
                data: BytesLike | None = part.records  # type: ignore[assignment]
                if not until and not waits:
                    until = time.perf_counter() + HOLD_SECONDS
                elif waits or (time.perf_counter() > until and not self._by_driver):
                    self.rest.append(
                        RequestPartition(name, part.index, None if data is None else kept(data), answers, at)
                    )
                    answers.append(PENDING)
                    continue
                self.take(name, part.index, data, answers, at)
        if adds:
            return TransactionalProduce(self, self._parts.workers, self._parts.transactions, adds)
        if waits:
            return VerifiedProduce(self, self._parts)
        return SlowProduce(self, self._parts.workers) if self.todo or self.rest else self.end()

    def _transactional(self, request: ProduceRequest) -> Iterator[tuple[Vnode, BytesLike]]:
        """The transactional batches of a request, with their partitions, that pass the checks so far."""
        for topic in request.topic_data:
            name = self._parts.partitions.topic_name(topic.topic_id) if self._version >= 13 else topic.name
            if name in self._parts.queries.closed or name in self._denied:
                continue
            for part in topic.partition_data:
                data: BytesLike | None = part.records  # type: ignore[assignment]
                if data and _is_transactional(data):
                    vnode = self._parts.partitions.get(name, part.index)
                    if vnode is not None:
                        yield vnode, data

    def _adds(self, request: ProduceRequest, transactional_id: str) -> dict[ProducerOf, set[TopicPartition]]:
        """By producer, the partitions to add to its transaction before the batches are written."""
        adds: dict[ProducerOf, set[TopicPartition]] = {}
        for vnode, data in self._transactional(request):
            producer, where = _producer_of(transactional_id, data), (vnode.topic, vnode.partition)
            try:
                self._parts.transactions.coordinator.verify(*producer, where)
            except KafkaError:  # to be added; a partition that cannot be is refused then
                adds.setdefault(producer, set()).add(where)
        return adds

    def _to_verify(self, request: ProduceRequest, transactional_id: str) -> Verifying | None:
        """The question to another node before the batches are written; None if no other coordinates the transaction."""
        transactions, adds = self._parts.transactions, self._version >= ADDS_SINCE
        if transactions.elsewhere is None or not (adds or transactions.verifies):
            return None
        if transactions.elsewhere.node_of(transactional_id) is None:
            return None
        found: Verifying | None = None
        for vnode, data in self._transactional(request):
            header = parse_header(data)
            if found is None:
                found = Verifying(transactional_id, header.producer_id, header.producer_epoch, adds=adds)
            with suppress(KafkaError):  # if the log cannot be used, the append will report it
                found.want(vnode, header.base_sequence)
        return found

    def take(
        self, name: str | None, index: int, data: BytesLike | None, answers: list[PartitionProduceResponse], at: int
    ) -> None:
        """Validate a batch and append it, or leave it in `todo`; either way put its answer in its place."""
        try:
            vnode = self._writable(name, index, data)
            assert data is not None
            if self._by_driver:
                result = self._parts.queries.append(vnode, data, self._now_ms)
            else:
                if data[ATTRIBUTES_AT] & TRANSACTIONAL:
                    self._check_transaction(vnode, data)
                result = vnode.append_valid(validate(data, vnode.rules, self._now_ms, light=True), now_ms=self._now_ms)
            answer = self._success(vnode, index, result, answers, at)
        except TooHeavy:
            assert data is not None
            self.todo.append(PendingAppend(vnode, kept(data), answers, at))
            answer = PartitionProduceResponse(index=index)
        except KafkaError as error:
            answer = self._failure(index, error, name)
        if at < len(answers):
            answers[at] = answer
        else:
            answers.append(answer)

    def look(self) -> list[Valid | KafkaError]:
        """Validate the batches in `todo`, each in turn. May be called in a thread."""
        found: list[Valid | KafkaError] = []
        for place in self.todo:
            try:
                found.append(validate(place.data, place.vnode.rules, self._now_ms))
            except KafkaError as error:
                found.append(error)
        return found

    def append(self, place: PendingAppend, found: Valid | KafkaError) -> None:
        """Append a batch that was validated in a thread."""
        vnode, _, answers, at = place
        index = answers[at].index
        try:
            if isinstance(found, KafkaError):
                raise found
            if vnode.topic in self._parts.queries.closed:  # it became a query topic meanwhile
                raise _refused(self._parts.queries, vnode.topic)
            if found.header.is_transactional:
                self._check_transaction(vnode, place.data)
            result = vnode.append_valid(found, now_ms=self._now_ms)
            answers[at] = self._success(vnode, index, result, answers, at)
        except KafkaError as error:
            answers[at] = self._failure(index, self._parts.partitions.gone(vnode) or error, vnode.topic)

    def end(self) -> ProduceResponse | DelayedResponse | None:
        """Every batch is appended or refused: give the answer, now or when consumers see every batch.

        Raises Disconnected if that is the only way to report an error.
        """
        if self._acks == 0 and self.failed is not None:
            raise Disconnected(f"produce with acks=0 failed: {self.failed.code.name}")
        return DelayedProduce(self, self._parts.flusher) if self.waits else self.response()

    def response(self) -> ProduceResponse | None:
        if self._acks == 0:
            return None
        if not self._leaders:
            return ProduceResponse(responses=self.topics)
        found = self._parts.nodes.some(self._leaders, self.context.connection.listener)
        return ProduceResponse(responses=self.topics, node_endpoints=[NodeEndpoint(*node) for node in found])

    def settle(self) -> None:
        """Consumers see every batch, except those of a failed partition, which get its error.

        A batch that was on disk before another node took the partition is acknowledged: its record is in the log.
        """
        for vnode, end, answers, at in self.waits:
            if vnode.error is not None and vnode.recovery_point < end:
                answers[at] = self._failure(
                    answers[at].index, self._parts.partitions.gone(vnode) or vnode.error, vnode.topic
                )

    def _writable(self, name: str | None, index: int, data: BytesLike | None) -> Vnode:
        """The partition, if this request may write this batch to it."""
        if self._refusal is not None:
            raise self._refusal
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        if self._denied and name in self._denied:
            raise KafkaError(WRITE_TOPIC.refusal)
        vnode = self._parts.partitions.led(name, index)
        if self._acks == ALL and vnode.topic in self._parts.partitions.without_enough_replicas:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "min.insync.replicas is above 1, the number of replicas")
        if data is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "no record batch")
        if (vnode.topic in self._parts.queries.closed) != self._by_driver:
            raise _refused(self._parts.queries, vnode.topic)
        if len(data) < HEADER_SIZE:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{len(data)} bytes are not a record batch")
        attributes = data[ATTRIBUTES_AT]
        if attributes & TRANSACTIONAL and self._transactional_id is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch without a transactional id"
            )
        if self._version < 7 and attributes & 0x07 == CompressionType.ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
        return vnode

    def _check_transaction(self, vnode: Vnode, data: BytesLike) -> None:
        """Check that a transactional batch belongs to the open transaction of its producer.

        The append follows at once, so nothing comes between. Raises KafkaError.
        """
        adds = self._version >= ADDS_SINCE
        if not adds and not self._parts.transactions.verifies:
            return
        assert self._transactional_id is not None
        where = vnode.topic, vnode.partition
        try:
            if where in self.not_added:
                raise KafkaError(self.not_added[where])
            producer = _producer_of(self._transactional_id, data)
            if self.verifying is None:
                self._parts.transactions.coordinator.verify(*producer, where)
            else:
                self.verifying.check(vnode, producer.producer_id, producer.epoch)
        except KafkaError as refusal:
            code = told_to_writer(refusal.code, knows_abortable=self._version >= ABORTABLE_SINCE, adds=adds)
            raise KafkaError(code, refusal.message) from None
        if adds:
            _check_begin(vnode, data)

    def _success(
        self, vnode: Vnode, index: int, result: AppendResult, answers: list[PartitionProduceResponse], at: int
    ) -> PartitionProduceResponse:
        if vnode.high_watermark <= result.last_offset:
            self.waits.append(PendingFlush(vnode, result.last_offset + 1, answers, at))
        else:
            self._parts.flusher.request(vnode)
        return PartitionProduceResponse(
            index=index,
            base_offset=result.base_offset,
            log_append_time_ms=result.append_time_ms,
            log_start_offset=result.log_start_offset,
        )

    def _failure(self, index: int, error: KafkaError, name: str | None) -> PartitionProduceResponse:
        self.failed = error
        told = self._version >= RECORD_ERRORS_SINCE
        start = -1
        if error.code in ABOUT_RECORDS:
            vnode = self._parts.partitions.get(name, index)
            start = vnode.log_start_offset if vnode is not None and vnode.error is None else -1
        current = LeaderIdAndEpoch()
        if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and self._version >= LEADERS_SINCE:
            leader = self._parts.partitions.leader(name, index)
            if leader is not None:
                current = LeaderIdAndEpoch(*leader)
                self._leaders |= {leader.node}
        return PartitionProduceResponse(
            index=index,
            error_code=error.code,
            base_offset=-1,
            log_start_offset=start,
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=message)
                for number, message in (error.records if told and isinstance(error, RejectedRecords) else ())
            ],
            error_message=error.message if told and error.message != error.code.name else None,
            current_leader=current,
        )


def _check_begin(vnode: Vnode, data: BytesLike) -> None:
    """If each transaction has its own epoch, its first batch in a partition must have sequence 0 (KIP-890).

    Any other sequence shows that the first batch was refused, or that one is missing. Raises KafkaError.
    """
    header = parse_header(data)
    if header.base_sequence > 0 and vnode.open_transaction(header.producer_id) is None:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} begins a transaction with sequence {header.base_sequence}",
        )


def _refused(queries: Queries, topic: str) -> KafkaError:
    """The reason why a client, or the streams driver, may not write a topic."""
    closed = topic in queries.closed
    if closed and topic not in INTERNAL_TOPICS:
        return KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is read-only: its records are the results of a query"
        )
    if closed and topic != QUERIES_TOPIC:
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "only the broker writes to an internal topic")
    return KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, f"{topic} and the transactional id do not go together"
    )


class DelayedProduce(DelayedResponse):
    """The response once consumers see every batch."""

    __slots__ = ("_left", "_producing")

    def __init__(self, producing: Producing, flusher: Flusher) -> None:
        super().__init__()
        self._producing = producing
        self._left = len(producing.waits)
        for vnode, end, _, _ in producing.waits:
            flusher.when_flushed(vnode, end, self._flushed)

    def _flushed(self) -> None:
        self._left -= 1
        if not self._left:
            self._producing.settle()
            self.finish(self._producing.response())


class SlowProduce(DelayedResponse):
    """A request whose batches take long to validate. It continues even if the client leaves: the batches were sent."""

    __slots__ = ("_producing", "_workers")

    def __init__(self, producing: Producing, workers: Workers) -> None:
        super().__init__(applied=False)
        self._producing, self._workers = producing, workers
        workers.start(self._run)

    async def _run(self) -> None:
        await self._producing.context.paid_steps(self._go_on())

    async def _go_on(self) -> None:
        producing, context = self._producing, self._producing.context
        try:
            yielder = Yielder()
            for asked in producing.rest:
                await yielder()
                producing.take(*asked)
            found = await self._workers.validate(context.client, context.paid(producing.look))
            for place, each in zip(producing.todo, found, strict=True):
                await yielder()
                producing.append(place, each)
            then = producing.end()
        except Exception as error:
            self.apply()
            self.fail(error)
            return
        self.apply()
        if isinstance(then, DelayedResponse) and not then.finished:
            then.on_finish = lambda: self.finish(then.message)
        else:
            self.finish(then.message if isinstance(then, DelayedResponse) else then)


class TransactionalProduce(SlowProduce):
    """A request that first adds partitions to its producer's transaction; its batches wait until that is durable."""

    __slots__ = ("_left",)

    def __init__(
        self,
        producing: Producing,
        workers: Workers,
        transactions: Transactions,
        adds: dict[ProducerOf, set[TopicPartition]],
    ) -> None:
        DelayedResponse.__init__(self, applied=False)
        self._producing, self._workers = producing, workers
        self._left = len(adds)
        for producer, places in adds.items():
            transactions.coordinator.add(
                *producer,
                frozenset(places),
                V2,
                lambda error, places=places: self._added(places, error),  # type: ignore[misc]
            )

    def _added(self, places: set[TopicPartition], error: ErrorCode) -> None:
        if error:
            self._producing.not_added.update(dict.fromkeys(places, told(error)))
        self._left -= 1
        if not self._left:
            self._workers.start(self._run)


class VerifiedProduce(SlowProduce):
    """A request that waits for the answer of its transaction's coordinator on another node."""

    __slots__ = ("_verifying",)

    def __init__(self, producing: Producing, parts: Parts) -> None:
        DelayedResponse.__init__(self, applied=False)
        self._producing, self._workers = producing, parts.workers
        assert producing.verifying is not None
        assert parts.transactions.elsewhere is not None
        self._verifying = producing.verifying
        copied = sum(len(each.data) for each in producing.rest if isinstance(each.data, bytes))
        parts.transactions.elsewhere.ask(Question(self._verifying, producing.context.client, copied, self._verified))

    def _verified(self, codes: Codes) -> None:
        self._producing.not_added.update({where: told(code) for where, code in codes.items() if code})
        self._workers.start(self._run)

    async def _go_on(self) -> None:
        try:
            await super()._go_on()
        finally:
            self._verifying.end()
