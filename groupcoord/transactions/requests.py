"""The requests of a transaction: add partitions to it (AddPartitionsToTxn, AddOffsetsToTxn), and end it (EndTxn).

If the previous transaction is still ending, Kafka answers at once with CONCURRENT_TRANSACTIONS, so that the client
tries again. Here the request waits a little: the end usually takes only a millisecond or two. Only a node that asks for
many transactions is answered at once, as all of them would wait for the slowest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from barnabas.groupcoord.log.store import told
from barnabas.groupcoord.outbox import Outbox
from barnabas.groupcoord.topics import Topics
from barnabas.groupcoord.transactions.completion import Completion
from barnabas.groupcoord.transactions.config import TransactionConfig
from barnabas.groupcoord.transactions.producers import NewProducerId
from barnabas.groupcoord.transactions.shard import (
    PARTITION_BYTES,
    Done,
    Transaction,
    TransactionShard,
    TransactionShards,
)
from barnabas.groupcoord.transactions.state import MAX_EPOCH, V1, V2, State, Status, fenced
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

_BATCHED_SINCE = 4  # AddPartitionsToTxn, for brokers
_V2_SINCE = 5  # EndTxn
_FENCED_SINCE = 2  # AddPartitionsToTxn, AddOffsetsToTxn, EndTxn: PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH


class TransactionRequests:
    """Each reply is called exactly once, when the change is durable or refused."""

    def __init__(
        self,
        config: TransactionConfig,
        shards: TransactionShards,
        completion: Completion,
        topics: Topics,
        group_partition_of: Callable[[str], int],
        new_producer_id: NewProducerId,
        outbox: Outbox,
        wall_ms: Callable[[], int],
    ) -> None:
        """`group_partition_of` gives the partition of `__consumer_offsets` for a group. It may raise KafkaError."""
        self._shards = shards
        self._completion = completion
        self._topics = topics
        self._group_partition_of = group_partition_of
        self._new_producer_id = new_producer_id
        self._outbox = outbox
        self._wall_ms = wall_ms
        self._patience = config.add_partitions_to_txn_retry_backoff_max_ms / 1000

    # --- what belongs to a transaction --------------------------------------------------------------------------------

    def add_partitions(
        self,
        request: AddPartitionsToTxnRequest,
        *,
        version: int,
        reply: Callable[[AddPartitionsToTxnResponse], None],
        of_node: bool = False,
    ) -> None:
        """AddPartitionsToTxn: for one transaction, or for many if a broker asks.

        `of_node`: another node asks; it may add partitions of `__consumer_offsets` like any others.
        """
        asked = request.transactions
        if version < _BATCHED_SINCE:
            asked = [
                AddPartitionsToTxnTransaction(
                    transactional_id=request.v3_and_below_transactional_id,
                    producer_id=request.v3_and_below_producer_id,
                    producer_epoch=request.v3_and_below_producer_epoch,
                    topics=request.v3_and_below_topics,
                )
            ]
        results: list[list[AddPartitionsToTxnTopicResult]] = [[] for _ in asked]
        left = len(asked)

        def answered(at: int, found: list[AddPartitionsToTxnTopicResult]) -> None:
            nonlocal left
            results[at] = found
            left -= 1
            if not left:
                answer()

        def answer() -> None:
            if version < _BATCHED_SINCE:
                self._outbox.put(reply, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0]))
                return
            by_transaction = [
                AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=result)
                for each, result in zip(asked, results, strict=True)
            ]
            self._outbox.put(reply, AddPartitionsToTxnResponse(results_by_transaction=by_transaction))

        with self._outbox:
            if not asked:
                answer()
            for at, each in enumerate(asked):
                self._add_of(each, version, of_node, lambda found, at=at: answered(at, found))  # type: ignore[misc]

    def _add_of(
        self,
        asked: AddPartitionsToTxnTransaction,
        version: int,
        of_node: bool,
        answer: Callable[[list[AddPartitionsToTxnTopicResult]], None],
    ) -> None:
        refused = self._refused(asked.topics, {OFFSETS_TOPIC} if of_node else ())
        if refused:
            rest = ErrorCode.OPERATION_NOT_ATTEMPTED
            answer(_results(asked.topics, lambda where: refused.get(where, rest)))
            return
        places = frozenset((topic.name, index) for topic in asked.topics for index in topic.partitions)
        if asked.verify_only:
            answer(_results(asked.topics, lambda where: self._verdict(asked, where)))
            return

        def done(error: ErrorCode) -> None:
            code = told(error)
            if code == ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
            answer(_results(asked.topics, lambda where: code))

        client_version, patience = (V1, self._patience) if version < _BATCHED_SINCE else (V2, 0)
        producer = asked.producer_id, asked.producer_epoch
        self._add(asked.transactional_id, *producer, places, client_version, done, patience)

    def _refused(
        self, topics: Sequence[AddPartitionsToTxnTopic], may_be_added: Collection[str]
    ) -> dict[TopicPartition, ErrorCode]:
        """The errors of partitions that no transaction can have. If there are any, no partition is added."""
        refused: dict[TopicPartition, ErrorCode] = {}
        for topic in topics:
            known = self._topics.by_name(topic.name)
            for index in topic.partitions:
                if topic.name in INTERNAL_TOPICS and topic.name not in may_be_added:
                    refused[topic.name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif known is None or not 0 <= index < known.partitions:
                    refused[topic.name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused

    def _verdict(self, asked: AddPartitionsToTxnTransaction, where: TopicPartition) -> ErrorCode:
        try:
            self.verify(asked.transactional_id, asked.producer_id, asked.producer_epoch, where)
        except KafkaError as refusal:
            return refusal.code
        return ErrorCode.NONE

    def add_offsets(
        self, request: AddOffsetsToTxnRequest, *, version: int, reply: Callable[[AddOffsetsToTxnResponse], None]
    ) -> None:
        """AddOffsetsToTxn: add the group's partition of `__consumer_offsets`."""

        def done(error: ErrorCode) -> None:
            self._outbox.put(reply, AddOffsetsToTxnResponse(error_code=_by_version(error, version)))

        with self._outbox:
            try:
                where = frozenset(((OFFSETS_TOPIC, self._group_partition_of(request.group_id)),))
            except KafkaError as refusal:
                done(refusal.code)
                return
            self.add(request.transactional_id, request.producer_id, request.producer_epoch, where, V1, done)

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        places: frozenset[TopicPartition],
        client_version: int,
        done: Done,
    ) -> None:
        """Add partitions to a producer's transaction; begin one if none is open."""
        with self._outbox:
            self._add(transactional_id, producer_id, epoch, places, client_version, done, self._patience)

    def _add(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        places: frozenset[TopicPartition],
        client_version: int,
        done: Done,
        patience: float,
    ) -> None:
        def again() -> None:
            with self._outbox:
                self._add(transactional_id, producer_id, epoch, places, client_version, done, 0)

        try:
            shard, transaction = self._shards.find(transactional_id)
            if not transaction.is_settled:  # first: the producer may use its next id and epoch already
                if self._shards.when_settled(transaction, patience, again):
                    return
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
            state = transaction.state
            _check_producer(state, producer_id, epoch)
            if state.status is Status.ONGOING and places <= state.partitions:
                done(ErrorCode.NONE)
                return
            self._shards.check_room(transaction.client, PARTITION_BYTES * len(places))
        except KafkaError as refusal:
            done(refusal.code)
            return
        self._shards.write(shard, transaction, state.added(places, client_version, self._wall_ms()), done)

    def verify(self, transactional_id: str, producer_id: int, epoch: int, where: TopicPartition) -> None:
        """Check that a producer may write into a partition now, as part of its transaction.

        Raises KafkaError: TRANSACTION_ABORTABLE if the partition was not added; the same errors as requests.
        """
        _, transaction = self._shards.find(transactional_id)
        state = transaction.state
        _check_producer(state, producer_id, epoch)
        if state.status is Status.ONGOING and where in state.partitions:
            return
        if not transaction.is_settled:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction before is not complete")
        raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the partition was not added to the transaction")

    # --- the end ------------------------------------------------------------------------------------------------------

    def end(self, request: EndTxnRequest, *, version: int, reply: Callable[[EndTxnResponse], None]) -> None:
        """EndTxn. The reply is called when the outcome is durable; markers follow."""

        def answer(error: ErrorCode, producer_id: int = -1, epoch: int = -1) -> None:
            code = _by_version(error, version)
            self._outbox.put(reply, EndTxnResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch))

        with self._outbox:
            try:
                shard, transaction = self._shards.find(request.transactional_id)
                if version < _V2_SINCE:
                    self._end_v1(shard, transaction, request, answer)
                else:
                    self._end_v2(shard, transaction, request, answer)
            except KafkaError as refusal:
                answer(refusal.code)

    def _end_v1(
        self,
        shard: TransactionShard,
        transaction: Transaction,
        request: EndTxnRequest,
        answer: Callable[..., None],
    ) -> None:
        state = transaction.state
        _check_producer(state, request.producer_id, request.producer_epoch)
        if transaction.is_busy:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if state.status is Status.ONGOING:
            prepared = state.prepared(committed=request.committed, version=V1, now_ms=self._wall_ms())
            self._completion.decide(shard, transaction, prepared, answer)
        elif state.has_ended(request.committed):
            answer(ErrorCode.NONE)
        elif state.status.is_prepared and state.status.is_commit == request.committed:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        else:
            raise _invalid(state)

    def _end_v2(
        self,
        shard: TransactionShard,
        transaction: Transaction,
        request: EndTxnRequest,
        answer: Callable[..., None],
    ) -> None:
        if not transaction.is_settled:  # first: the producer may use its next id and epoch already
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        state = transaction.state
        if state.status not in (Status.ONGOING, Status.EMPTY) and state.repeats_end(
            request.producer_id, request.producer_epoch
        ):
            if not state.has_ended(request.committed):
                raise _invalid(state)
            answer(ErrorCode.NONE, state.producer_id, state.producer_epoch)
            return
        _check_producer(state, request.producer_id, request.producer_epoch)
        if request.committed and state.status is not Status.ONGOING:
            raise _invalid(state)
        if state.is_exhausted:
            self._end_exhausted(shard, transaction, request, answer)
        else:
            self._decide(shard, transaction, request.committed, -1, answer)

    def _end_exhausted(
        self,
        shard: TransactionShard,
        transaction: Transaction,
        request: EndTxnRequest,
        answer: Callable[..., None],
    ) -> None:
        """End a transaction and give the producer a new id for its next one."""
        transaction.is_busy = True

        def given(producer_id: int | KafkaError) -> None:
            with self._outbox:
                if isinstance(producer_id, KafkaError):
                    self._shards.give_up(transaction)
                    answer(producer_id.code)
                elif not self._shards.has(shard):
                    answer(ErrorCode.NOT_COORDINATOR)
                else:
                    self._decide(shard, transaction, request.committed, producer_id, answer)

        self._new_producer_id(given)

    def _decide(
        self,
        shard: TransactionShard,
        transaction: Transaction,
        committed: bool,
        next_producer_id: int,
        answer: Callable[..., None],
    ) -> None:
        prepared = transaction.state.prepared(
            committed=committed, version=V2, now_ms=self._wall_ms(), next_producer_id=next_producer_id
        )
        then = prepared.completed(0)  # the producer's id and epoch from then on

        def decided(error: ErrorCode) -> None:
            if error:
                answer(error)
            else:
                answer(error, then.producer_id, then.producer_epoch)

        self._completion.decide(shard, transaction, prepared, decided)


def _check_producer(state: State, producer_id: int, epoch: int) -> None:
    """Raises KafkaError if the producer is not, or no longer, the one of the transactional id."""
    if producer_id != state.producer_id:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"the transactional id has producer {state.producer_id} now"
        )
    if epoch != state.producer_epoch or epoch == MAX_EPOCH:  # no producer ever gets the last epoch
        raise fenced(state, epoch)


def _invalid(state: State) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TXN_STATE, f"the transaction is in state {state.status.told}")


def _by_version(error: ErrorCode, version: int) -> ErrorCode:
    code = told(error)
    if code == ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _results(
    topics: Collection[AddPartitionsToTxnTopic], code_of: Callable[[TopicPartition], ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=code_of((topic.name, index))
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
