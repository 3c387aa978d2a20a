"""Markers for other nodes: late or missing answers, leaders that move, topics that are deleted."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from barnabas.broker.between.peers import Unreachable
from barnabas.broker.clock import Clock
from barnabas.broker.coordinators.marker_router import MOST_MARKERS, MarkerRouter
from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.partitions import Partitions
from barnabas.broker.tests.conftest import until
from barnabas.broker.workers import Workers
from barnabas.groupcoord.transactions.tests.harness import V1, V2, Entry, Partition, World
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.batch import Marker
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.wire.records.cluster_metadata import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from barnabas.wire.types import Message

HERE = 1
Codes = Callable[[TopicPartition, Marker], ErrorCode]


def answer_to(request: WriteTxnMarkersRequest, code_of: Codes) -> WriteTxnMarkersResponse:
    """The answer of a node, in the order of the request."""
    results = []
    for asked in request.markers:
        marker = Marker(asked.producer_id, asked.producer_epoch, asked.transaction_result, asked.coordinator_epoch)
        topics = [
            WritableTxnMarkerTopicResult(
                topic.name,
                [
                    WritableTxnMarkerPartitionResult(index, code_of((topic.name, index), marker))
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ]
        results.append(WritableTxnMarkerResult(asked.producer_id, topics))
    return WriteTxnMarkersResponse(results)


class Asked:
    """A request that the test has to answer."""

    def __init__(self, node: int, request: WriteTxnMarkersRequest) -> None:
        self.node, self.request = node, request
        self._done = trio.Event()
        self._answer: WriteTxnMarkersResponse | None = None

    @property
    def places(self) -> list[TopicPartition]:
        return [(t.name, index) for each in self.request.markers for t in each.topics for index in t.partition_indexes]

    async def wait(self) -> WriteTxnMarkersResponse:
        await self._done.wait()
        if self._answer is None:
            raise Unreachable("it has ended")
        return self._answer

    async def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self._answer = answer_to(self.request, lambda where, marker: code)
        await self.end()

    async def answer_with(self, answer: WriteTxnMarkersResponse) -> None:
        self._answer = answer
        await self.end()

    async def end(self) -> None:
        """End the request; without `answer` before it, the node has not answered."""
        self._done.set()
        await wait_all_tasks_blocked()


class Cluster:
    """This node's image, a router, and the requests that it has sent."""

    def __init__(self, workers: Workers) -> None:
        self.image = MetadataImage(HERE, Clock())
        self.partitions = Partitions(self.image, {})
        self.router = MarkerRouter(self, self.partitions, workers)
        self.open: list[Asked] = []
        self.told: list[tuple[TopicPartition, ErrorCode]] = []

    async def ask(self, node: int, request: Message, version: int | None = None) -> Any:
        assert isinstance(request, WriteTxnMarkersRequest)
        asked = Asked(node, request)
        self.open.append(asked)
        try:
            return await asked.wait()
        finally:
            self.open.remove(asked)

    def topic(self, name: str, *leaders: int, number: int = 1) -> None:
        """Create a topic whose partitions have these leaders."""
        topic_id = bytes(14) + bytes((number, len(name)))
        self.image.apply(TopicRecord(name=name, topic_id=topic_id))
        for index, leader in enumerate(leaders):
            self.image.apply(PartitionRecord(partition_id=index, topic_id=topic_id, leader=leader, replicas=[leader]))

    def move(self, name: str, index: int, leader: int) -> None:
        topic_id = self.image.topics[name].topic_id
        self.image.apply(PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=leader))

    def delete(self, name: str) -> None:
        self.image.apply(RemoveTopicRecord(topic_id=self.image.topics[name].topic_id))

    async def write(
        self,
        *places: TopicPartition,
        producer: int = 7,
        epoch: int = 0,
        new_epoch: bool = True,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        for where in places:
            node = self.partitions.elsewhere(*where)
            assert node is not None
            marker = Marker(producer, epoch, True, 3)
            told = self.told.append

            def done(code: ErrorCode, where: TopicPartition = where) -> None:
                told((where, code))

            self.router.write(node, where, marker, done, new_epoch=new_epoch, wanted=wanted)
        await wait_all_tasks_blocked()


@pytest.fixture
async def cluster(nursery: trio.Nursery) -> Cluster:
    workers = Workers()
    workers.nursery = nursery
    return Cluster(workers)


async def next_asked(cluster: Cluster) -> None:
    """Wait until the router has asked a node."""
    await until(lambda: bool(cluster.open))


async def test_markers_travel_together_and_say_what_they_are(cluster: Cluster) -> None:
    cluster.topic("t", 2, 2, 3)
    await cluster.write(("t", 0), ("t", 1), ("t", 2))
    await cluster.write(("t", 0), producer=8, epoch=4, new_epoch=False)  # waits for the first request
    to_two, to_three = sorted(cluster.open, key=lambda each: each.node)
    assert [(each.node, each.places) for each in (to_two, to_three)] == [
        (2, [("t", 0), ("t", 1)]),
        (3, [("t", 2)]),
    ]
    (marker,) = to_two.request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 0, 3)
    assert (marker.transaction_result, marker.transaction_version) == (True, V2)
    await to_three.answer()
    assert cluster.told == [(("t", 2), ErrorCode.NONE)]
    await to_two.answer()
    assert cluster.told[1:] == [(("t", 0), ErrorCode.NONE), (("t", 1), ErrorCode.NONE)]
    (second,) = cluster.open
    assert [(m.producer_id, m.producer_epoch, m.transaction_version) for m in second.request.markers] == [(8, 4, V1)]
    await second.answer()
    assert len(cluster.told) == 4
    assert cluster.router._waiting == {}


async def test_a_request_has_a_bounded_number_of_markers(cluster: Cluster) -> None:
    cluster.topic("t", *[2] * (MOST_MARKERS * 2 + 1))
    await cluster.write(*(("t", index) for index in range(MOST_MARKERS * 2 + 1)))
    sizes = []
    while cluster.open:
        sizes.append(len(cluster.open[0].places))
        assert len(cluster.open) == 1
        await cluster.open[0].answer()
    assert sizes == [MOST_MARKERS, MOST_MARKERS, 1]
    assert [where[1] for where, code in cluster.told if not code] == list(range(MOST_MARKERS * 2 + 1))


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR]
)
async def test_what_another_node_says_never_ends_the_tries(cluster: Cluster, code: ErrorCode) -> None:
    cluster.topic("t", 2)
    await cluster.write(("t", 0))
    await cluster.open[0].answer(code)
    ((_, told),) = cluster.told
    assert told not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_a_node_that_answers_something_else(cluster: Cluster) -> None:
    cluster.topic("t", 2)
    for answer in (WriteTxnMarkersResponse([]), WriteTxnMarkersResponse([WritableTxnMarkerResult(99, [])])):
        await cluster.write(("t", 0))
        await cluster.open[0].answer_with(answer)
        assert cluster.told.pop() == (("t", 0), ErrorCode.NETWORK_EXCEPTION)


async def test_a_node_that_was_away_for_long_gets_its_markers_within_a_second(
    cluster: Cluster, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """In their order, with what has come meanwhile, and without those that nobody waits for any more."""
    cluster.topic("t", 2, 2, 2)
    wanted = True
    await cluster.write(("t", 0))
    await cluster.write(("t", 1), wanted=lambda: wanted)
    back = trio.current_time() + 300
    while trio.current_time() < back:
        await next_asked(cluster)
        await cluster.open[0].end()
        assert cluster.told == []
    wanted = False
    await cluster.write(("t", 2))
    gone_again = trio.current_time()
    await next_asked(cluster)
    assert trio.current_time() - gone_again < 1
    assert cluster.open[0].places == [("t", 0), ("t", 2)]
    await cluster.open[0].answer()
    assert cluster.told == [(("t", 0), ErrorCode.NONE), (("t", 2), ErrorCode.NONE)]
    assert caplog.messages == ["node 2 is away: 2 markers of transactions wait for it: it has ended"]
    assert cluster.router._waiting == {}


async def test_what_waits_for_a_node_that_is_away_goes_where_its_partition_goes(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    cluster.topic("t", 2, 2)
    await cluster.write(("t", 0), ("t", 1))
    await cluster.open[0].end()
    cluster.move("t", 1, 3)
    await next_asked(cluster)
    assert cluster.open[0].places == [("t", 0)]
    assert cluster.told == [(("t", 1), ErrorCode.NOT_LEADER_OR_FOLLOWER)]


async def test_this_nodes_image_says_that_a_partition_is_gone(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    cluster.topic("t", 2)
    await cluster.write(("t", 0))
    await cluster.write(("t", 0), producer=8)
    cluster.delete("t")
    await cluster.open[0].end()
    await until(lambda: len(cluster.told) == 2)
    assert cluster.told == [(("t", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)] * 2
    assert cluster.open == []


async def test_an_answer_is_about_the_topic_that_was_there(cluster: Cluster) -> None:
    """A new topic of the same name may have records of the transaction, so its marker is written there, too."""
    cluster.topic("t", 2)
    await cluster.write(("t", 0))
    cluster.delete("t")
    cluster.topic("t", 3, number=2)
    await cluster.open[0].answer()
    assert cluster.told == [(("t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    await cluster.write(("t", 0))
    assert cluster.open[0].node == 3
    await cluster.open[0].answer()
    assert cluster.told[-1] == (("t", 0), ErrorCode.NONE)


async def test_a_leader_that_moves(cluster: Cluster) -> None:
    """Requests under way are answered by the old leader; waiting markers are not sent there."""
    cluster.topic("t", 2, 2)
    await cluster.write(("t", 0))
    await cluster.write(("t", 1))
    cluster.move("t", 0, 3)
    cluster.move("t", 1, 3)
    await cluster.open[0].answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert cluster.told == [(("t", at), ErrorCode.NOT_LEADER_OR_FOLLOWER) for at in (0, 1)]
    assert cluster.open == []


async def test_what_nobody_waits_for_any_more_is_not_sent(cluster: Cluster) -> None:
    cluster.topic("t", 2)
    await cluster.write(("t", 0))
    wanted = True
    await cluster.write(("t", 0), producer=8, wanted=lambda: wanted)
    wanted = False
    await cluster.open[0].answer()
    assert cluster.open == []
    assert cluster.told == [(("t", 0), ErrorCode.NONE)]
    assert cluster.router._waiting == {}


# --- a coordinator whose partitions are all elsewhere -----------------------------------------------------------------


class RoutedMarkers:
    """Sends all markers of a coordinator through a router, to nodes that fail at random."""

    def __init__(self, world: World, workers: Workers, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = world
        self.cluster = Cluster(workers)
        self.cluster.router = MarkerRouter(self, self.cluster.partitions, workers)
        for topic in world.topics.topics:
            self.cluster.topic(topic.name, *(self.random.choice((2, 3)) for _ in range(topic.partitions)))
        self.asked = 0

    def write(self, where: TopicPartition, marker: Marker, done: Callable[[ErrorCode], None], **more: Any) -> None:
        node = self.cluster.partitions.elsewhere(*where)
        if node is None:
            done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            self.cluster.router.write(node, where, marker, done, **more)

    async def ask(self, node: int, request: Message, version: int | None = None) -> Any:
        assert isinstance(request, WriteTxnMarkersRequest)
        self.asked += 1
        await trio.sleep(self.random.random())
        if self.random.random() < 0.2:
            raise Unreachable
        answer = answer_to(request, lambda where, marker: self._end(node, where, marker))
        await trio.sleep(self.random.random())
        if self.random.random() < 0.2:
            raise Unreachable  # but the markers were written
        if self.random.random() < 0.2:
            self._move()
        return answer

    def _move(self) -> None:
        topic = self.random.choice(self.world.topics.topics)
        self.cluster.move(topic.name, self.random.randrange(topic.partitions), self.random.choice((2, 3)))

    def _end(self, node: int, where: TopicPartition, marker: Marker) -> ErrorCode:
        """What the receiving side does if it leads the partition. A node may also lag behind."""
        if self.random.random() < 0.1:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self.cluster.partitions.elsewhere(*where) != node:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition = self.world.partitions[where]
        try:
            partition.end(marker, True)
        except KafkaError as refusal:
            nothing_open = partition.producers.open_transaction(marker.producer_id) is None
            return ErrorCode.NONE if nothing_open else refusal.code
        return ErrorCode.NONE


@asynccontextmanager
async def clock_of(world: World) -> AsyncIterator[None]:
    """The coordinator's deadlines fire in trio's time."""
    world.clock.now = trio.current_time()

    async def run() -> None:
        while True:
            world.clock.now = trio.current_time()
            world.coordinator.deadlines.fire_due()
            await trio.sleep(0.05)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(10))
async def test_every_transaction_ends_in_every_partition_once(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery, seed: int
) -> None:
    workers = Workers()
    workers.nursery = nursery
    world = World()
    markers = RoutedMarkers(world, workers, seed)
    world.markers = markers  # type: ignore[assignment]
    world.start()
    names = [f"p{number}" for number in range(5)]
    producers = {name: world.producer(name) for name in names}
    async with clock_of(world):
        for _ in range(4):
            for name in names:
                producer = producers[name]
                for where in (("orders", 0), ("orders", 1), ("payments", 0)):
                    assert world.add_implicitly(producer, where, name=name).get() == ErrorCode.NONE
                    world.write(producer, where, name=name)
                answer = world.end(producer, committed=markers.random.random() < 0.5, name=name).get()
                producers[name] = answer.producer_id, answer.producer_epoch
            with trio.fail_after(3600):
                while not all(world.coordinator.shards.find(name)[1].is_settled for name in names):
                    await trio.sleep(0.1)
    for where in (("orders", 0), ("orders", 1), ("payments", 0)):
        partition: Partition = world.partitions[where]
        ended: list[Entry] = [each for each in partition.log if each.first_open is not None]
        assert len(ended) == 4 * len(names)
        assert partition.producers.undecided.first > len(partition.log)
    assert markers.asked > 4 * 2
