"""Questions to coordinators on other nodes, and all orders in which answers, markers and appends may come."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from barnabas.broker.between.peers import Unreachable
from barnabas.broker.clock import Clock
from barnabas.broker.coordinators.verifying import (
    ANSWER_SECONDS,
    MOST_BYTES,
    MOST_TRANSACTIONS,
    MOST_WAITING_BYTES,
    Codes,
    CoordinatorsElsewhere,
    Question,
    Verifying,
)
from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.partitions import Partitions
from barnabas.broker.tests.client import batch_of
from barnabas.broker.workers import Workers
from barnabas.groupcoord.transactions.tests.harness import World
from barnabas.storage.config import LogConfig
from barnabas.storage.producer_state import ProducerState
from barnabas.storage.tests.memory import MemoryVnode
from barnabas.storage.tests.support import NOW, TOPIC_ID
from barnabas.storage.vnode import Vnode
from barnabas.wire.batch import Marker
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import TRANSACTIONS_TOPIC
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from barnabas.wire.records.cluster_metadata import PartitionChangeRecord, PartitionRecord, TopicRecord
from barnabas.wire.types import Message

PATIENCE = 0.1
WHERE = ("orders", 0)


def vnode_of(topic: str = "orders", partition: int = 0) -> Vnode:
    return MemoryVnode(topic, partition, TOPIC_ID, LogConfig())


# --- the orders -------------------------------------------------------------------------------------------------------


class VnodePartition:
    """Writes markers to a vnode, as the coordinator's harness expects of a partition."""

    def __init__(self, vnode: MemoryVnode) -> None:
        self.vnode = vnode

    @property
    def producers(self) -> ProducerState:
        return self.vnode._producers

    def end(self, marker: Marker, new_epoch: bool) -> None:
        self.vnode.end_transaction(marker, new_epoch=new_epoch, now_ms=NOW)


class Race:
    """A batch that a coordinator on another node verifies, while two transactions begin and end."""

    def __init__(self, *, is_v2: bool, committed: bool, guarded: bool) -> None:
        self.is_v2, self.committed, self.guarded = is_v2, committed, guarded
        self.world = World()
        self.world.markers.is_held = True
        self.vnode = MemoryVnode(*WHERE, TOPIC_ID, LogConfig())
        self.world.partitions[WHERE] = VnodePartition(self.vnode)  # type: ignore[assignment]
        self.first = self.producer = self.world.producer()
        if not is_v2:
            assert self.world.add_error(self.producer) == ErrorCode.NONE
        self.verifying = Verifying("t", *self.producer, adds=is_v2)
        self.verdict = ErrorCode.NONE
        self.appended = False
        self.refusals: set[ErrorCode] = set()

    def steps(self) -> tuple[list[Callable[[], None]], list[Callable[[], None]]]:
        """The steps of the batch, and the steps of the transactions."""
        batch = [self.begin, self.ask, self.append]
        return batch, [self.end, self.write_markers, self.add, self.end, self.write_markers]

    def begin(self) -> None:
        self.verifying.want(self.vnode, 0)
        self.verifying.begin()

    def ask(self) -> None:
        self.verdict = self.world.add_error(self.first, version=5, verify=not self.is_v2)

    def append(self) -> None:
        if not self.verdict:
            try:
                if self.guarded:
                    self.verifying.check(self.vnode, *self.first)
                producer, epoch = self.first
                data = batch_of(
                    b"v", producer_id=producer, producer_epoch=epoch, base_sequence=0, is_transactional=True
                )
                self.vnode.append(data, now_ms=NOW)
                self.appended = True
            except KafkaError as error:
                self.refusals.add(error.code)
        self.verifying.end()

    def end(self) -> None:
        answer = self.world.end(self.producer, committed=self.committed, version=5 if self.is_v2 else 4).get()
        if self.is_v2 and not answer.error_code:
            self.producer = answer.producer_id, answer.producer_epoch

    def write_markers(self) -> None:
        self.world.markers.release_all()

    def add(self) -> None:
        if not self.is_v2:
            assert self.world.add_error(self.producer) == ErrorCode.NONE

    @property
    def hangs(self) -> bool:
        """Whether the partition has an open transaction that no coordinator knows."""
        is_open = self.vnode.open_transaction(self.first[0]) is not None
        return is_open and not self.world.status().startswith(("Ongoing", "Prepare"))


def merges(one: list[Any], other: list[Any]) -> Iterator[list[Any]]:
    """All ways to merge two lists of steps."""
    total = len(one) + len(other)
    for places in itertools.combinations(range(total), len(one)):
        rest, steps = iter(other), iter(one)
        yield [next(steps) if at in places else next(rest) for at in range(total)]


def races(**settings: bool) -> Iterator[Race]:
    """A race for each order, after all its steps."""
    count = len(list(merges(*Race(**settings).steps())))
    for number in range(count):
        race = Race(**settings)
        for step in next(itertools.islice(merges(*race.steps()), number, None)):
            step()
        yield race


@pytest.mark.parametrize("is_v2", [False, True], ids=["version 1", "version 2"])
@pytest.mark.parametrize("committed", [False, True], ids=["abort", "commit"])
def test_no_order_leaves_a_hanging_transaction(is_v2: bool, committed: bool) -> None:
    done = list(races(is_v2=is_v2, committed=committed, guarded=True))
    assert len(done) == 56
    assert not any(race.hangs for race in done)
    assert any(race.appended for race in done)
    retriable_or_fenced = {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_PRODUCER_EPOCH}
    assert set().union(*(race.refusals for race in done)) <= retriable_or_fenced
    assert all(len(race.vnode._producers.verifications) == 0 for race in done)


def test_without_the_verification_some_orders_do() -> None:
    assert any(race.hangs for race in races(is_v2=False, committed=False, guarded=False))


def test_an_earlier_batch_that_waits_comes_first() -> None:
    """A producer unknown to this partition may begin with any sequence, but not with that of its second batch."""
    vnode = vnode_of()
    first, second = Verifying("t", 7, 0, adds=False), Verifying("t", 7, 0, adds=False)
    stranger = Verifying("other", 7, 0, adds=False)
    for verifying, sequence in ((second, 5), (first, 4), (stranger, 0)):
        verifying.want(vnode, sequence)
        verifying.begin()
    with pytest.raises(KafkaError) as caught:
        second.check(vnode, 7, 0)
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    first.check(vnode, 7, 0)
    first.end()
    second.check(vnode, 7, 0)


def test_a_request_has_one_producer_and_what_was_open_may_have_ended() -> None:
    vnode = vnode_of()
    data = batch_of(b"v", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    vnode.append(data, now_ms=NOW)
    verifying = Verifying("t", 7, 0, adds=False)
    verifying.want(vnode)
    assert verifying.places == {}
    verifying.check(vnode, 7, 0)
    for producer in ((7, 1), (8, 0)):
        with pytest.raises(KafkaError) as caught:
            verifying.check(vnode, *producer)
        assert caught.value.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    vnode.end_transaction(Marker(7, 0, False, 0), new_epoch=False, now_ms=NOW)
    with pytest.raises(KafkaError) as caught:
        verifying.check(vnode, 7, 0)
    assert caught.value.code == ErrorCode.NOT_ENOUGH_REPLICAS


# --- questions --------------------------------------------------------------------------------------------------------


class Coordinators:
    """The other nodes: `codes` are their answers, which come after `delay` seconds."""

    def __init__(self, workers: Workers) -> None:
        self.image = MetadataImage(1, Clock())
        topic_id = bytes(15) + b"\1"
        self.image.apply(TopicRecord(name=TRANSACTIONS_TOPIC, topic_id=topic_id))
        for index in range(2):
            self.image.apply(PartitionRecord(partition_id=index, topic_id=topic_id, leader=2, replicas=[2]))
        self.elsewhere = CoordinatorsElsewhere(
            self, Partitions(self.image, {}), lambda name: len(name) % 2, workers, PATIENCE
        )
        self.asked: list[tuple[int, AddPartitionsToTxnRequest]] = []
        self.codes: dict[str, list[ErrorCode]] = {}
        self.delay = 0.001
        self.most_at_once = self._now = 0
        self.before_answer: Callable[[], None] = lambda: None
        self.told: dict[str, ErrorCode] = {}
        self.told_at = 0.0

    def move(self, index: int, node: int) -> None:
        topic_id = self.image.topics[TRANSACTIONS_TOPIC].topic_id
        self.image.apply(PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=node))

    async def ask(self, node: int, request: Message, version: int | None = None) -> Any:
        assert isinstance(request, AddPartitionsToTxnRequest)
        assert len({each.verify_only for each in request.transactions}) == 1
        self.asked.append((node, request))
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            await trio.sleep(self.delay)
        finally:
            self._now -= 1
        self.before_answer()
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    each.transactional_id,
                    [
                        AddPartitionsToTxnTopicResult(
                            topic.name,
                            [
                                AddPartitionsToTxnPartitionResult(index, self._code(each.transactional_id))
                                for index in topic.partitions
                            ],
                        )
                        for topic in each.topics
                    ],
                )
                for each in request.transactions
            ]
        )

    def _code(self, name: str) -> ErrorCode:
        codes = self.codes.get(name, [ErrorCode.NONE])
        return codes.pop(0) if len(codes) > 1 else codes[0]

    def put(
        self, name: str, vnode: Vnode | None = None, *, adds: bool = True, client: str = "c", weight: int = 0
    ) -> Verifying:
        verifying = Verifying(name, 7, 0, adds=adds)
        verifying.want(vnode or vnode_of())

        def answered(codes: Codes) -> None:
            (self.told[name],) = codes.values()
            self.told_at = trio.current_time()

        self.elsewhere.ask(Question(verifying, client, weight, answered))
        return verifying

    async def settled(self) -> None:
        """Wait until all questions are answered, and nothing is kept of them."""
        while self.elsewhere._shares.used or self.elsewhere._waiting:
            await trio.sleep(1)

    def sizes(self) -> list[int]:
        return [len(request.transactions) for _, request in self.asked]


@pytest.fixture
async def others(nursery: trio.Nursery) -> Coordinators:
    workers = Workers()
    workers.nursery = nursery
    return Coordinators(workers)


async def test_what_waits_is_one_request_of_each_kind(others: Coordinators, autojump_clock: MockClock) -> None:
    names = [f"id-{number:03}" for number in range(20)]
    for name in names[:10]:
        others.put(name)
    await wait_all_tasks_blocked()
    for at, name in enumerate(names[10:]):
        others.put(name, adds=bool(at % 2))
    await others.settled()
    assert sorted(others.sizes()) == [5, 5, 10]
    assert others.most_at_once == 2
    assert others.told == dict.fromkeys(names, ErrorCode.NONE)


async def test_a_request_is_bounded_in_transactions_and_bytes(others: Coordinators, autojump_clock: MockClock) -> None:
    for number in range(MOST_TRANSACTIONS + 1):
        others.put(f"id-{number:04}")
    await others.settled()
    assert others.sizes() == [MOST_TRANSACTIONS, 1]
    others.asked.clear()
    for number in range(5):
        others.put(f"{number}" * 32_000)
    await others.settled()
    assert others.sizes() == [MOST_BYTES // 32_000, 2, 1]


async def test_a_hoarder_leaves_room_for_others(others: Coordinators, autojump_clock: MockClock) -> None:
    others.delay = 1.0
    for number in range(1_000):
        others.put(f"hoarder-{number}", client="hoarder", weight=256 << 10)
    refused = [name for name, code in others.told.items() if code == ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert len(refused) > 700
    assert others.elsewhere._shares.used < MOST_WAITING_BYTES / 2
    others.put("modest", client="modest", weight=256 << 10)
    assert "modest" not in others.told
    await others.settled()
    assert others.told["modest"] == ErrorCode.NONE


async def test_a_coordinator_that_does_not_answer(others: Coordinators, autojump_clock: MockClock) -> None:
    others.delay = ANSWER_SECONDS * 2
    begun = trio.current_time()
    vnode = vnode_of()
    verifying = others.put("t", vnode)
    await others.settled()
    assert others.told == {"t": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert others.told_at - begun == pytest.approx(ANSWER_SECONDS, abs=0.1)
    verifying.end()


async def test_a_coordinator_that_is_gone_or_speaks_of_something_else(
    others: Coordinators, autojump_clock: MockClock
) -> None:
    def gone() -> None:
        raise Unreachable

    others.before_answer = gone
    others.put("t")
    await others.settled()
    assert others.told.pop("t") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    others.before_answer = lambda: None
    for code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED):  # its image is behind
        others.codes["t"] = [code]
        others.put("t")
        await others.settled()
        assert others.told.pop("t") == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_the_transaction_before_is_waited_for_a_little(others: Coordinators, autojump_clock: MockClock) -> None:
    others.codes["t"] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3 + [ErrorCode.NONE]
    others.put("t")
    await others.settled()
    assert (others.told["t"], len(others.asked)) == (ErrorCode.NONE, 4)
    others.codes["t"] = [ErrorCode.CONCURRENT_TRANSACTIONS]
    begun = trio.current_time()
    others.put("t")
    await others.settled()
    assert others.told["t"] == ErrorCode.CONCURRENT_TRANSACTIONS
    assert others.told_at - begun == pytest.approx(PATIENCE, abs=0.01)
    others.asked.clear()
    others.put("t", adds=False)  # only questions that add partitions are repeated
    await others.settled()
    assert (others.told["t"], len(others.asked)) == (ErrorCode.CONCURRENT_TRANSACTIONS, 1)


async def test_a_marker_of_the_transaction_before_makes_it_ask_again(
    others: Coordinators, autojump_clock: MockClock
) -> None:
    vnode = vnode_of()
    markers = [Marker(7, 0, True, 0)]

    def end_one() -> None:
        if markers:
            vnode.end_transaction(markers.pop(), new_epoch=False, now_ms=NOW)

    others.before_answer = end_one
    verifying = others.put("t", vnode)
    await others.settled()
    assert (others.told["t"], len(others.asked)) == (ErrorCode.NONE, 2)
    verifying.check(vnode, 7, 0)
    verifying.end()


async def test_a_coordinator_that_moves(others: Coordinators, autojump_clock: MockClock) -> None:
    others.codes["t"] = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]
    others.put("t")
    await wait_all_tasks_blocked()
    others.move(1, 3)
    await others.settled()
    assert [node for node, _ in others.asked] == [2, 3]
    others.codes["t"] = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]
    others.put("t")
    await wait_all_tasks_blocked()
    others.move(1, 1)
    await others.settled()
    assert others.told["t"] == ErrorCode.NOT_COORDINATOR
    assert others.elsewhere.node_of("t") is None
    others.move(1, -1)
    assert others.elsewhere.node_of("t") is None
