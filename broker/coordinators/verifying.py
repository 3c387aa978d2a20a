"""Verifies transactions that another node coordinates: the questions of Produce and TxnOffsetCommit to that node.

    begin: verifications in the partitions -> AddPartitionsToTxn to the coordinator -> each append checks its own -> end

A client up to version 11 of Produce adds its partitions itself, so the coordinator is only asked whether it has done
so. For later versions, the question adds them (KIP-890). A partition in which the transaction is already open needs no
question.

A node gets one request of each kind at a time, with the questions of all clients. If the previous transaction is not
complete, the coordinator answers at once (CONCURRENT_TRANSACTIONS), so that no request waits for another client's
transaction. The question is repeated for as long as add.partitions.to.txn.retry.backoff.max.ms allows. Each time, the
verifications begin again, because the marker of the previous transaction has ended them.

Source: KIP-890, Kafka's AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

import trio

from barnabas.broker.between.peers import Peers, Unreachable
from barnabas.broker.partitions import Partitions
from barnabas.broker.workers import Workers
from barnabas.groupcoord.shares import Shares
from barnabas.storage.verification import Verification
from barnabas.storage.vnode import Vnode
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import TRANSACTIONS_TOPIC
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

Codes = Mapping[TopicPartition, ErrorCode]

# The most in one request to a coordinator. A single transaction may have more bytes.
MOST_TRANSACTIONS, MOST_BYTES = 500, 64 << 10
# How long a coordinator may take to answer. After that, clients get an error that makes them try again.
ANSWER_SECONDS = 30.0
# The pause before a coordinator is asked again. It doubles each time.
FIRST_PAUSE_SECONDS = 0.002
# The most bytes of questions and their batches that wait for coordinators.
MOST_WAITING_BYTES = 64 << 20
#: The memory of a question without its texts, and of each of its partitions; rounded up.
QUESTION_BYTES, PLACE_BYTES = 1_000, 500
# Codes for a partition that this node knows and the coordinator does not: the coordinator's image is behind.
_BEHIND = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED)


class Verifying:
    """The records of one request from one producer, and the partitions in which they would begin its transaction."""

    __slots__ = ("_standing", "adds", "epoch", "places", "producer_id", "transactional_id")

    def __init__(self, transactional_id: str, producer_id: int, epoch: int, *, adds: bool) -> None:
        """If `adds`, the coordinator adds the partitions to the transaction; otherwise it only looks for them."""
        self.transactional_id, self.producer_id, self.epoch, self.adds = transactional_id, producer_id, epoch, adds
        #: The partitions in which the transaction would begin.
        self.places: dict[TopicPartition, Vnode] = {}
        self._standing: dict[Vnode, Verification] = {}

    def want(self, vnode: Vnode, sequence: int = -1) -> None:
        """Note that there are records for a partition. Raises KafkaError if its log cannot be used."""
        if vnode not in self._standing and not vnode.in_transaction(self.producer_id, self.epoch):
            self.places[vnode.topic, vnode.partition] = vnode
            self._standing[vnode] = Verification(self.transactional_id, self.producer_id, self.epoch, sequence)

    def begin(self) -> None:
        """Called before each question to the coordinator: begin the verifications again that a marker has ended."""
        for vnode, verification in self._standing.items():
            with suppress(KafkaError):  # the log is no longer usable: the append will say why
                vnode.begin_verification(verification)

    @property
    def stands(self) -> bool:
        """Whether no marker has ended a verification since it began."""
        try:
            for vnode in self._standing:
                self.check(vnode, self.producer_id, self.epoch)
        except KafkaError as error:
            return error.code != ErrorCode.NOT_ENOUGH_REPLICAS
        return True

    def check(self, vnode: Vnode, producer_id: int, epoch: int) -> None:
        """Check that records may be appended to a partition now, without a checkpoint in between. Raises KafkaError."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "a request may have records of only one producer")
        if vnode.in_transaction(producer_id, epoch):
            return
        standing = self._standing.get(vnode)
        if standing is None:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "the transaction was open here, and has ended")
        vnode.check_verification(standing)

    def end(self) -> None:
        """Called when everything is appended or refused."""
        for vnode, standing in self._standing.items():
            vnode.end_verification(standing)


class Question:
    """A question to a coordinator, for which one request waits."""

    __slots__ = ("answered", "client", "pause", "until", "verifying", "weight")

    def __init__(self, verifying: Verifying, client: str, weight: int, answered: Callable[[Codes], None]) -> None:
        """`weight` is the memory of the request, in bytes. `answered` is called once, with every partition."""
        self.verifying, self.client, self.answered = verifying, client, answered
        self.weight = weight + len(verifying.transactional_id) + QUESTION_BYTES + PLACE_BYTES * len(verifying.places)
        self.pause = FIRST_PAUSE_SECONDS
        self.until = 0.0


class CoordinatorsElsewhere:
    """Asks other nodes about the transactions that they coordinate."""

    def __init__(
        self,
        peers: Peers,
        partitions: Partitions,
        partition_of: Callable[[str], int],
        workers: Workers,
        patience_seconds: float,
    ) -> None:
        """`partition_of` gives the partition of `__transaction_state` for a transactional id."""
        self._peers, self._partitions, self._workers = peers, partitions, workers
        self._partition_of, self._patience = partition_of, patience_seconds
        self._shares = Shares(MOST_WAITING_BYTES)
        self._waiting: dict[tuple[int, bool], deque[Question]] = {}

    def node_of(self, transactional_id: str) -> int | None:
        """The node that coordinates a transactional id; None if this node does, or no node."""
        return self._partitions.elsewhere(TRANSACTIONS_TOPIC, self._partition_of(transactional_id))

    def ask(self, question: Question) -> None:
        """Ask, in one request with the questions of others."""
        if question.weight > self._shares.spare(question.client):
            question.answered(dict.fromkeys(question.verifying.places, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self._shares.take(question.client, question.weight)
        question.until = trio.current_time() + self._patience
        self._put(question)

    def _put(self, question: Question) -> None:
        node = self.node_of(question.verifying.transactional_id)
        if node is None:  # it has moved, perhaps to this node: the client tries again and then learns where
            self._end(question, dict.fromkeys(question.verifying.places, ErrorCode.NOT_COORDINATOR))
            return
        key = node, question.verifying.adds
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = deque()
            self._workers.start(self._send, key, waiting)
        waiting.append(question)

    async def _send(self, key: tuple[int, bool], waiting: deque[Question]) -> None:
        """Ask a node until no question waits for it."""
        while waiting:
            asked = _next(waiting)
            for each in asked:
                each.verifying.begin()
            answer: AddPartitionsToTxnResponse | None = None
            with trio.move_on_after(ANSWER_SECONDS), suppress(Unreachable):
                answer = await self._peers.ask(key[0], _request(asked))
            results = [] if answer is None or answer.error_code else answer.results_by_transaction
            for at, each in enumerate(asked):
                told: dict[TopicPartition, ErrorCode] = {}
                if at < len(results) and results[at].transactional_id == each.verifying.transactional_id:
                    for topic in results[at].topic_results:
                        for part in topic.results_by_partition:
                            told[topic.name, part.partition_index] = ErrorCode(part.partition_error_code)
                self._answered(each, told)
        del self._waiting[key]

    def _answered(self, question: Question, told: Codes) -> None:
        codes: dict[TopicPartition, ErrorCode] = {}
        for where in question.verifying.places:
            code = told.get(where, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            codes[where] = ErrorCode.COORDINATOR_NOT_AVAILABLE if code in _BEHIND else code
        is_early = question.verifying.adds and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
        is_late = not any(codes.values()) and not question.verifying.stands
        left = question.until - trio.current_time()
        if (is_early or is_late) and left > 0:
            self._workers.start(self._again, question, min(question.pause, left))
            question.pause *= 2
        else:
            self._end(question, codes)

    async def _again(self, question: Question, pause: float) -> None:
        await trio.sleep(pause)
        self._put(question)

    def _end(self, question: Question, codes: Codes) -> None:
        self._shares.take(question.client, -question.weight)
        question.answered(codes)


def _next(waiting: deque[Question]) -> list[Question]:
    """The questions for the next request."""
    found: list[Question] = []
    size = 0
    while waiting and len(found) < MOST_TRANSACTIONS:
        verifying = waiting[0].verifying
        size += len(verifying.transactional_id) + sum(len(topic) + 8 for topic, _ in verifying.places)
        if found and size > MOST_BYTES:
            break
        found.append(waiting.popleft())
    return found


def _request(asked: list[Question]) -> AddPartitionsToTxnRequest:
    transactions = []
    for verifying in (each.verifying for each in asked):
        by_topic: dict[str, list[int]] = {}
        for topic, index in verifying.places:
            by_topic.setdefault(topic, []).append(index)
        transactions.append(
            AddPartitionsToTxnTransaction(
                transactional_id=verifying.transactional_id,
                producer_id=verifying.producer_id,
                producer_epoch=verifying.epoch,
                verify_only=not verifying.adds,
                topics=[AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in by_topic.items()],
            )
        )
    return AddPartitionsToTxnRequest(transactions)
