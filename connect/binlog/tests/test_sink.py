"""The answers that a broker may give while a chunk is written, and their effects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.client.errors import ClientError
from barnabas.client.tests.scripted import Scripted, metadata, scripted
from barnabas.connect.binlog import sink
from barnabas.connect.binlog.charsets import literal
from barnabas.connect.binlog.columns import Column, Layout
from barnabas.connect.binlog.events import UPDATE, WRITE
from barnabas.connect.binlog.messages import FORMATS, Group, format_of
from barnabas.connect.binlog.place import Position
from barnabas.connect.binlog.reader import Change, Place
from barnabas.connect.binlog.selected import _unread
from barnabas.connect.binlog.sink import OtherReaderError, Out, Sink, TooLargeError
from barnabas.wire.batch import iter_records
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

AFTER = Position(place=Place("0-1-6", "bin.1", 400))
LEADERS = {"barnabas.connect": {0: 1}, "t": {0: 1}}


class Broker:
    """One broker, which answers writes to `t` with the next of `codes`, and with no error after the last."""

    def __init__(self, broker: Scripted) -> None:
        self.codes: list[int] = []
        self.configs: int | dict[str, str] = {}
        self.written: list[list[tuple[str, bytes]]] = []
        broker.play |= {
            MetadataRequest: lambda request: metadata({1: broker}, LEADERS, request),
            FindCoordinatorRequest: lambda _: FindCoordinatorResponse(node_id=1),
            InitProducerIdRequest: lambda _: InitProducerIdResponse(0, 0, 7, 3),
            EndTxnRequest: lambda _: EndTxnResponse(0, 0, 7, 4),
            CreateTopicsRequest: lambda request: CreateTopicsResponse(
                topics=[
                    CreatableTopicResult(each.name, error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
                    for each in request.topics
                ]
            ),
            ListOffsetsRequest: self._offsets,
            DescribeConfigsRequest: self._describe,
            ProduceRequest: self._produce,
        }
        self.sink = Sink(str(broker.address), "name", 1, {})

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        def parts(topic: ListOffsetsTopic) -> list[ListOffsetsPartitionResponse]:
            return [ListOffsetsPartitionResponse(part.partition_index) for part in topic.partitions]

        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(each.name, parts(each)) for each in request.topics])

    def _describe(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        code, configs = (0, self.configs) if isinstance(self.configs, dict) else (self.configs, {})
        results = [DescribeConfigsResourceResult(name, value) for name, value in configs.items()]
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(code, None, each.resource_type, each.resource_name, results)
                for each in request.resources
            ]
        )

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        told: list[TopicProduceResponse] = []
        seen: list[tuple[str, bytes]] = []
        for topic in request.topic_data:
            for part in topic.partition_data:
                code = self.codes.pop(0) if topic.name == "t" and self.codes else 0
                assert isinstance(part.records, (bytes, memoryview))
                seen += [(topic.name, bytes(part.records))]
                told.append(
                    TopicProduceResponse(
                        name=topic.name, partition_responses=[PartitionProduceResponse(part.index, code)]
                    )
                )
        self.written.append(seen)
        return ProduceResponse(responses=told)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with scripted() as played:
        made = Broker(played)
        made.sink.begin()
        yield made
        made.sink.close()


def out(value: bytes) -> Out:
    headers = (("barnabas.source", b"name"), ("barnabas.gtid", b"0-1-6"), ("barnabas.index", b"2"))
    return Out("t", b"key", value, headers, 5)


@pytest.mark.parametrize("code", [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_batch_waits_for_the_transaction_before(broker: Broker, code: int) -> None:
    broker.codes = [code] * 3
    broker.sink.write([out(b"v")], AFTER)
    assert [[topic for topic, _ in seen] for seen in broker.written] == [["t", "barnabas.connect"], *[["t"]] * 3]
    batches = {data for seen in broker.written for topic, data in seen if topic == "t"}
    assert len(batches) == 1, "the same sequence numbers"


def test_a_transaction_before_that_does_not_end_is_told(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "_PATIENCE_SECONDS", 0.05)
    broker.codes = [ErrorCode.CONCURRENT_TRANSACTIONS] * 1000
    with pytest.raises(ClientError, match="CONCURRENT_TRANSACTIONS"):
        broker.sink.write([out(b"v")], AFTER)


def test_who_is_fenced_ends_for_another_reader(broker: Broker) -> None:
    broker.codes = [ErrorCode.INVALID_PRODUCER_EPOCH]
    with pytest.raises(OtherReaderError, match="another reader has taken over name"):
        broker.sink.write([out(b"v")], AFTER)


def test_a_transaction_that_the_broker_has_ended_as_too_old_is_no_other_reader(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "TRANSACTION_MS", 0)
    broker.codes = [ErrorCode.INVALID_PRODUCER_EPOCH]
    with pytest.raises(ClientError, match="took longer than"):
        broker.sink.write([out(b"v")], AFTER)


def test_batches_fit_their_topic(broker: Broker) -> None:
    broker.configs = {"max.message.bytes": "5000", "segment.bytes": "4000"}
    broker.sink.write([out(b"v" * 300)] * 100, AFTER)
    batches = [data for seen in broker.written for topic, data in seen if topic == "t"]
    assert len(batches) > 10
    assert all(len(data) <= 4000 for data in batches)
    assert sum(len(list(iter_records(data))) for data in batches) == 100


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        (int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), TooLargeError),
        ({"max.message.bytes": "1000000"}, TooLargeError),
    ],
)
def test_what_the_broker_finds_too_large_ends_it(broker: Broker, configs: Any, error: type[Exception]) -> None:
    broker.configs = configs
    broker.codes = [ErrorCode.MESSAGE_TOO_LARGE]
    with pytest.raises(error, match=r"which t does not take: barnabas topics alter t"):
        broker.sink.write([out(b"v")], AFTER)


def test_a_bound_that_was_lowered_meanwhile_is_asked_for_again(broker: Broker) -> None:
    broker.configs = {"max.message.bytes": "1000000"}
    broker.sink.write([out(b"v")], AFTER)
    broker.configs = {"max.message.bytes": "1000"}
    broker.codes = [ErrorCode.MESSAGE_TOO_LARGE]
    with pytest.raises(ClientError, match="t takes only 1,000 bytes now, not 1,000,000"):
        broker.sink.write([out(b"v" * 2000)], AFTER)
    broker.sink.begin()
    with pytest.raises(
        TooLargeError, match=r"message 2 of 0-1-6 has 2,\d+ bytes, and t takes 1,000: barnabas topics alter"
    ):
        broker.sink.write([out(b"v" * 2000)], AFTER)


@pytest.mark.parametrize(
    ("size", "segment", "remedy"),
    [
        (1_500_000, 1 << 30, "--config max.message.bytes=4194304"),
        (1_500_000, 2 << 20, "--config max.message.bytes=4194304 --config segment.bytes=4194304"),
        (60 << 20, 1 << 30, f"--config max.message.bytes={99 << 20} (an UPDATE of it"),
        (100 << 20, 1 << 30, "no request has more than 103,809,024, or choose --oversize split or truncate"),
    ],
)
def test_the_size_to_raise_to_holds_the_row_before_and_after(
    broker: Broker, size: int, segment: int, remedy: str
) -> None:
    broker.configs = {"max.message.bytes": "1048588", "segment.bytes": str(segment)}
    with pytest.raises(TooLargeError) as told:
        broker.sink.write([out(b"v" * size)], AFTER)
    assert remedy in str(told.value)


@pytest.mark.parametrize("shape", FORMATS)
def test_a_topic_that_was_raised_takes_the_first_update_of_a_row_even_if_that_grows_a_little(
    broker: Broker, shape: str
) -> None:
    layout = Layout("d", "t", (Column("v", "text", _unread, literal),), ())
    group = Group("0-1-6", 5, "h", 1, "name", "bin.1", 4)

    def message(kind: int, *images: str) -> Out:
        change = format_of(shape).change(group, Change(kind, layout, [], 5))
        return out(change(tuple([image] for image in images), 2))

    broker.configs = {"max.message.bytes": "1048588"}
    row, grown = "x" * (1 << 20), "x" * (1 << 20) + "y" * 5000
    with pytest.raises(TooLargeError) as told:
        broker.sink.write([message(WRITE, row)], AFTER)
    broker.configs = {"max.message.bytes": str(told.value).partition("max.message.bytes=")[2].split(",")[0]}
    broker.sink.begin()
    broker.sink.write([message(UPDATE, row, grown)], AFTER)
