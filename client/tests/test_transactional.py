"""Consecutive transactions, with coordinators that move, are not ready, refuse, and hang up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from barnabas.client import transactional
from barnabas.client.cluster import Cluster
from barnabas.client.errors import RefusedError, UnknownFateError
from barnabas.client.groups import Committed, committed
from barnabas.client.produce import Batch
from barnabas.client.tests.scripted import FakeTime, Scripted, metadata, scripted
from barnabas.client.transactional import TransactionalProducer
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from barnabas.wire.messages.produce import PartitionProduceResponse
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.wire.types import Message


class Coordinator:
    """One broker, whose next error codes the test sets."""

    def __init__(self, broker: Scripted) -> None:
        self.broker, self.time = broker, FakeTime()
        self.codes: list[int] = []
        broker.play[MetadataRequest] = lambda request: metadata({1: broker}, {}, request)
        broker.play[FindCoordinatorRequest] = lambda _: FindCoordinatorResponse(node_id=1)
        broker.play[InitProducerIdRequest] = lambda _: InitProducerIdResponse(0, self.code(), 7, 3)
        broker.play[EndTxnRequest] = lambda _: EndTxnResponse(0, self.code(), 7, 4)
        broker.play[TxnOffsetCommitRequest] = lambda _: TxnOffsetCommitResponse(
            topics=[TxnOffsetCommitResponseTopic("t", [TxnOffsetCommitResponsePartition(0, self.code())])]
        )
        self.cluster = Cluster(str(broker.address), timing=self.time.timing)
        self.producer = TransactionalProducer(self.cluster, "secret/name", "name", timeout_ms=5000)

    def code(self) -> int:
        return self.codes.pop(0) if self.codes else 0


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    with scripted() as broker:
        made = Coordinator(broker)
        with made.cluster:
            yield made


def first(coordinator: Coordinator, kind: type[Message]) -> Any:
    """The first request of this kind."""
    return next(request for request in coordinator.broker.requests if type(request) is kind)


def test_each_end_brings_the_epoch_of_the_next_transaction(coordinator: Coordinator) -> None:
    producer = coordinator.producer
    producer.begin()
    assert (producer.producer_id, producer.epoch) == (7, 3)
    producer.commit_offsets("g", {("t", 0): Committed(5, "note")})
    producer.end(commit=True)
    assert (producer.producer_id, producer.epoch) == (7, 4)
    kinds = InitProducerIdRequest, FindCoordinatorRequest, TxnOffsetCommitRequest, EndTxnRequest
    began, asked, told, ended = (first(coordinator, kind) for kind in kinds)
    assert (began.transactional_id, began.transaction_timeout_ms) == ("secret/name", 5000)
    assert (asked.key, asked.key_type) == ("name", 1)
    assert (told.transactional_id, told.group_id, told.producer_id, told.producer_epoch) == ("secret/name", "g", 7, 3)
    part = told.topics[0].partitions[0]
    assert (part.committed_offset, part.committed_metadata) == (5, "note")
    assert (ended.transactional_id, ended.producer_id, ended.producer_epoch, ended.committed) == (
        "secret/name", 7, 3, True
    )  # fmt: skip


def test_what_passes_is_waited_for(coordinator: Coordinator) -> None:
    coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    coordinator.producer.begin()
    assert coordinator.time.slept == [0.1, 0.2]
    coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR]
    coordinator.producer.commit_offsets("g", {("t", 0): Committed(5)})
    assert coordinator.broker.asked(TxnOffsetCommitRequest) == 3
    assert coordinator.broker.asked(FindCoordinatorRequest) == 3  # for the id, for the group, and for the group again


def test_who_was_fenced_is_told(coordinator: Coordinator) -> None:
    coordinator.producer.begin()
    coordinator.codes = [ErrorCode.INVALID_PRODUCER_EPOCH]
    with pytest.raises(RefusedError, match="INVALID_PRODUCER_EPOCH"):
        coordinator.producer.end(commit=True)


def test_an_end_without_an_answer_is_not_repeated(coordinator: Coordinator) -> None:
    coordinator.producer.begin()
    coordinator.broker.play[EndTxnRequest] = lambda _: None
    with pytest.raises(UnknownFateError):
        coordinator.producer.end(commit=True)
    assert coordinator.broker.asked(EndTxnRequest) == 1


def test_stable_positions_wait_for_the_end_of_a_transaction(coordinator: Coordinator) -> None:
    coordinator.codes = [ErrorCode.UNSTABLE_OFFSET_COMMIT]

    def fetched(request: OffsetFetchRequest) -> OffsetFetchResponse:
        assert request.require_stable
        code = coordinator.code()
        part = OffsetFetchResponsePartition(0, -1 if code else 9, metadata="n", error_code=code)
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", [part])])

    coordinator.broker.play[OffsetFetchRequest] = fetched
    assert committed(coordinator.cluster, "g", [("t", 0)], stable=True) == {("t", 0): Committed(9, "n")}
    assert coordinator.time.slept == [0.1]


def test_a_partition_with_a_transaction_that_is_not_complete_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [
        {("a", 0): ErrorCode.CONCURRENT_TRANSACTIONS, ("a", 1): ErrorCode.NONE, ("b", 0): ErrorCode.MESSAGE_TOO_LARGE},
        {("a", 0): ErrorCode.CONCURRENT_TRANSACTIONS},
        {("a", 0): ErrorCode.NONE},
    ]
    asked: list[list[TopicPartition]] = []

    def produce(cluster: Cluster, batches: Sequence[Batch], **_: object) -> dict[TopicPartition, object]:
        asked.append([(batch.topic, batch.partition) for batch in batches])
        codes = told[len(asked) - 1]
        return {key: PartitionProduceResponse(key[1], code, 0) for key, code in codes.items()}

    monkeypatch.setattr(transactional, "produce", produce)
    batches = [Batch("a", 0, b""), Batch("a", 1, b""), Batch("b", 0, b"")]
    found = transactional.write(cast("Cluster", None), "id", batches, patience=60)
    assert {key: answer.error_code for key, answer in found.items()} == {
        ("a", 0): ErrorCode.NONE,
        ("a", 1): ErrorCode.NONE,
        ("b", 0): ErrorCode.MESSAGE_TOO_LARGE,
    }
    assert asked[1:] == [[("a", 0)]] * 2
    told[:] = [{("a", 0): ErrorCode.CONCURRENT_TRANSACTIONS}]
    asked.clear()
    impatient = transactional.write(cast("Cluster", None), "id", batches[:1], patience=0)
    assert impatient["a", 0].error_code == ErrorCode.CONCURRENT_TRANSACTIONS
