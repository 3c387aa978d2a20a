"""Producing to leaders and fetching from them, while they move, refuse and lie."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, RefusedError, UnknownFateError
from barnabas.client.fetch import Reader, fetch
from barnabas.client.produce import Batch, answers, post, produce
from barnabas.client.tests.scripted import FakeTime, Scripted, metadata, scripted
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

DATA = build_batch([Record(None, b"v", 1)])


class Pair:
    """Two brokers and the leader of `t`; what each received by Produce, and its answers."""

    def __init__(self, one: Scripted, two: Scripted) -> None:
        self.brokers = {1: one, 2: two}
        self.leaders = {"t": {0: 1, 1: 2}}
        self.codes = {1: ErrorCode.NONE, 2: ErrorCode.NONE}
        self.written: list[tuple[int, int]] = []  # broker, partition
        self.handled = threading.Semaphore(0)
        self.time = FakeTime()
        for number, broker in self.brokers.items():
            broker.play[MetadataRequest] = lambda request: metadata(self.brokers, self.leaders, request)
            broker.play[ProduceRequest] = self.producing(number)
        self.cluster = Cluster(str(one.address), timing=self.time.timing)

    def producing(self, number: int) -> Callable[[ProduceRequest], ProduceResponse]:
        def answer(request: ProduceRequest) -> ProduceResponse:
            (topic,) = request.topic_data
            code = self.codes[number]
            if not code:
                self.written += [(number, part.index) for part in topic.partition_data]
            self.handled.release()
            parts = [PartitionProduceResponse(part.index, code) for part in topic.partition_data]
            return ProduceResponse(responses=[TopicProduceResponse(topic.name, partition_responses=parts)])

        return answer


@pytest.fixture
def pair() -> Iterator[Pair]:
    with scripted() as one, scripted() as two:
        made = Pair(one, two)
        with made.cluster:
            yield made


BOTH = [Batch("t", 0, DATA), Batch("t", 1, DATA)]


# --- produce ----------------------------------------------------------------------------------------------------------


def test_each_batch_goes_to_its_leader(pair: Pair) -> None:
    told = produce(pair.cluster, BOTH)
    assert {key: part.error_code for key, part in told.items()} == {("t", 0): 0, ("t", 1): 0}
    assert sorted(pair.written) == [(1, 0), (2, 1)]


def test_what_a_former_leader_has_refused_goes_to_the_new_one_and_nothing_twice(pair: Pair) -> None:
    produce(pair.cluster, BOTH)
    pair.written.clear()
    pair.codes[1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    pair.leaders = {"t": {0: 2, 1: 2}}
    told = produce(pair.cluster, BOTH)
    assert {part.error_code for part in told.values()} == {0}
    assert sorted(pair.written) == [(2, 0), (2, 1)]
    assert pair.time.slept == [0.1]


def test_a_refusal_that_stays_is_handed_back(pair: Pair) -> None:
    pair.codes[1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert produce(pair.cluster, BOTH[:1])["t", 0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert pair.time.now > 25
    pair.time.slept.clear()
    pair.codes[1] = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert produce(pair.cluster, BOTH[:1])["t", 0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert not pair.time.slept, "it may have been written"


def test_an_answer_that_is_lost_leaves_the_fate_unknown(pair: Pair) -> None:
    pair.brokers[1].play[ProduceRequest] = lambda _: None
    with pytest.raises(UnknownFateError, match="whether Produce was carried out is not known"):
        produce(pair.cluster, BOTH)
    assert pair.brokers[1].asked(ProduceRequest) == 1
    assert not pair.time.slept


def test_an_answer_without_the_partition_is_no_success(pair: Pair) -> None:
    pair.brokers[1].play[ProduceRequest] = lambda _: ProduceResponse()
    with pytest.raises(ClientError, match="Produce to t-0: the broker's answer does not have it"):
        produce(pair.cluster, BOTH[:1])


def test_a_topic_that_is_not_there(pair: Pair) -> None:
    with pytest.raises(RefusedError, match="Produce to absent-0: UNKNOWN_TOPIC_OR_PARTITION"):
        produce(pair.cluster, [Batch("absent", 0, DATA)])


def test_answers_may_be_read_later(pair: Pair) -> None:
    sent = post(pair.cluster, BOTH)
    assert {key: part.error_code for key, part in answers(sent).items()} == {("t", 0): 0, ("t", 1): 0}


def test_a_leader_that_is_gone_after_another_was_sent_its_part(pair: Pair) -> None:
    produce(pair.cluster, BOTH)
    pair.brokers[2].stop()
    with pytest.raises(UnknownFateError, match="other brokers were sent their part of Produce before"):
        produce(pair.cluster, BOTH)
    for _ in range(3):  # two before, and the one that was not waited for
        assert pair.handled.acquire(timeout=60)
    assert pair.written.count((1, 0)) == 2, "not sent again"


# --- fetch ------------------------------------------------------------------------------------------------------------


def fetched(code: int = 0, data: bytes = b"", end: int = 0) -> FetchResponse:
    part = PartitionData(0, code, high_watermark=end, records=memoryview(data))
    return FetchResponse(responses=[FetchableTopicResponse("t", partitions=[part])])


def batch(first: int, *values: bytes) -> bytes:
    data = bytearray(build_batch([Record(None, value, 1) for value in values]))
    data[:8] = first.to_bytes(8, "big")  # not covered by the CRC
    return bytes(data)


def test_records_before_the_position_are_passed_over_and_a_torn_batch_is_left_for_the_next_fetch(pair: Pair) -> None:
    data = batch(5, b"five", b"six") + batch(7, b"seven")
    pair.brokers[1].play[FetchRequest] = lambda _: fetched(data=data[:-1], end=8)
    reader = Reader(pair.cluster, "t")
    reader.positions = {0: 6}
    assert [(partition, record.value) for partition, record in reader.poll()] == [(0, b"six")]
    assert reader.positions == {0: 7}
    assert not reader.at_end()
    pair.brokers[1].play[FetchRequest] = lambda _: fetched(data=batch(7, b"seven"), end=8)
    assert [record.value for _, record in reader.poll()] == [b"seven"]
    assert reader.at_end()


def test_of_a_partition_that_is_peeked_at_as_little_is_asked_for_as_can_be(pair: Pair) -> None:
    asked: list[FetchRequest] = []

    def answer(request: FetchRequest) -> FetchResponse:
        asked.append(request)
        return fetched(data=batch(0, b"a"), end=1)

    pair.brokers[1].play[FetchRequest] = answer
    fetch(pair.cluster, {("t", 0): 0}, peek={("t", 0)})
    fetch(pair.cluster, {("t", 0): 0}, peek={("t", 1)})
    assert [request.topics[0].partitions[0].partition_max_bytes for request in asked] == [1, 1 << 20]


def test_a_leader_that_has_moved_is_fetched_from_where_it_is_now(pair: Pair) -> None:
    pair.brokers[1].play[FetchRequest] = lambda _: fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    pair.brokers[2].play[FetchRequest] = lambda _: fetched(data=batch(0, b"a"), end=1)
    pair.cluster.leaders("t")
    pair.leaders = {"t": {0: 2}}
    reader = Reader(pair.cluster, "t")
    reader.positions = {0: 0}
    assert [record.value for _, record in reader.poll()] == [b"a"]
    assert pair.time.slept == [0.1]


def test_a_fetch_is_repeated_when_its_answer_is_lost(pair: Pair) -> None:
    def hangs_up(_: FetchRequest) -> None:
        pair.brokers[1].play[FetchRequest] = lambda _: fetched(data=batch(0, b"a"), end=1)

    pair.brokers[1].play[FetchRequest] = hangs_up
    assert fetch(pair.cluster, {("t", 0): 0})["t", 0].high_watermark == 1
    assert pair.brokers[1].asked(FetchRequest) == 2


def test_a_position_whose_records_were_deleted_moves_to_the_start(pair: Pair) -> None:
    pair.brokers[1].play[FetchRequest] = lambda _: fetched(ErrorCode.OFFSET_OUT_OF_RANGE)
    first = ListOffsetsTopicResponse("t", [ListOffsetsPartitionResponse(0, offset=40)])
    pair.brokers[1].play[ListOffsetsRequest] = lambda _: ListOffsetsResponse(topics=[first])
    cluster = Cluster(str(pair.brokers[1].address), timing=pair.time.timing)
    reader = Reader(cluster, "t")
    reader.positions = {0: 3}
    assert list(reader.poll()) == []
    assert reader.positions == {0: 40}


@pytest.mark.parametrize("noise", [b"\xff" * 100, b"\0" * 100, batch(0, b"a")[:-1] + b"\xff"])
def test_bytes_that_are_no_records_are_one_line(pair: Pair, noise: bytes) -> None:
    pair.brokers[1].play[FetchRequest] = lambda _: fetched(data=noise, end=1)
    reader = Reader(pair.cluster, "t")
    reader.positions = {0: 0}
    with pytest.raises(ClientError, match="Records at offset 0 of partition 0: "):
        list(reader.poll())
