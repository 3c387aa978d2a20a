"""The transactions of one transactional id, one after the other (KIP-98), with an epoch for each (KIP-890).

A batch that is written with the id and epoch belongs to the transaction: partitions are not announced. In each
transaction, a partition's sequence numbers start at 0. Each end returns the epoch of the next transaction, so anything
still in flight from an earlier one is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from barnabas.client.cluster import TRANSACTION, Cluster
from barnabas.client.errors import check
from barnabas.client.groups import Committed
from barnabas.client.produce import Batch, produce
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.produce import PartitionProduceResponse
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas.wire.types import Message

R = TypeVar("R", bound=Message)
_END, _COMMIT_OFFSETS = 5, 5  # the first versions with an epoch for each transaction
_AGAIN_SECONDS = 0.005
_ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
#: Temporary errors: the previous transaction is not complete yet.
_NOT_YET = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


def write(
    cluster: Cluster, transactional_id: str, batches: Sequence[Batch], *, patience: float, timeout_ms: int = 30_000
) -> dict[TopicPartition, PartitionProduceResponse]:
    """Send batches in the open transaction of an id. Returns the answers, including refusals.

    While the previous transaction is being completed in a partition, that partition is retried, for `patience` seconds.
    Raises ClientError.
    """
    found: dict[TopicPartition, PartitionProduceResponse] = {}
    until = time.monotonic() + patience
    while True:
        told = produce(cluster, batches, timeout_ms=timeout_ms, transactional_id=transactional_id)
        found.update(told)
        batches = [batch for batch in batches if told[batch.topic, batch.partition].error_code in _NOT_YET]
        if not batches or time.monotonic() > until:
            return found
        time.sleep(_AGAIN_SECONDS)


class TransactionalProducer:
    """Every method raises ClientError; after that, only `begin` helps, which aborts what is open."""

    def __init__(self, cluster: Cluster, transactional_id: str, known_as: str = "", *, timeout_ms: int) -> None:
        """`known_as` is the id for finding the coordinator."""
        self.cluster, self.transactional_id = cluster, transactional_id
        self._known_as, self._timeout_ms = known_as or transactional_id, timeout_ms
        self.producer_id, self.epoch = -1, -1

    def begin(self) -> None:
        """Take over the id: its previous owner can write no more, and the owner's open transaction is aborted."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms)
        answer = self._ask(request, InitProducerIdResponse, lambda told: told.error_code)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def commit_offsets(self, group: str, positions: Mapping[TopicPartition, Committed]) -> None:
        """Commit a group's positions as part of the transaction."""
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), at in positions.items():
            part = TxnOffsetCommitRequestPartition(partition, at.offset, at.leader_epoch, at.metadata)
            topics.setdefault(topic, []).append(part)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(topic, parts) for topic, parts in topics.items()],
        )

        def attempt() -> None:
            answer = self.cluster.find_coordinator(group).ask(request, TxnOffsetCommitResponse, version=_COMMIT_OFFSETS)
            for code in (each.error_code for of in answer.topics for each in of.partitions):
                if code in _ELSEWHERE:
                    self.cluster.forget_coordinator(group)
                check(code, f"Commit of group {group} in a transaction")

        self.cluster.again(attempt)

    def end(self, *, commit: bool) -> None:
        """End the transaction. If the connection is lost, the outcome is unknown until someone calls `begin`."""
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)
        answer = self._ask(request, EndTxnResponse, lambda told: told.error_code, version=_END)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def _ask(self, request: Message, response: type[R], code: Callable[[R], int], *, version: int | None = None) -> R:
        def attempt() -> R:
            answer = self.cluster.find_coordinator(self._known_as, TRANSACTION).ask(request, response, version=version)
            if code(answer) in _ELSEWHERE:
                self.cluster.forget_coordinator(self._known_as, TRANSACTION)
            check(code(answer), f"Transactional id {self._known_as}")
            return answer

        return self.cluster.again(attempt)
