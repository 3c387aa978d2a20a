"""Simulated hours with producers that are killed, replaced and repeat requests, a store and partitions that are slow or
fail, and coordinators that restart between any two records.

Everything random comes from one seed, so a failure can be repeated. Any request of a version 2 producer may be repeated
at any later time. Version 1 cannot handle that (see KIP-890), so there only the coordinator's side is hostile.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pytest

from barnabas.groupcoord.tests.harness import Reply
from barnabas.groupcoord.transactions.records import parse_transaction, transaction_record
from barnabas.groupcoord.transactions.state import MAX_EPOCH, Status, new_state
from barnabas.groupcoord.transactions.tests.harness import V1, V2, World
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.batch import Marker
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.wire.messages.end_txn import EndTxnRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest

#: Transactional ids with the version that their producers use; the epochs of the last one are nearly used up.
IDS = {"one": V1, "two": V2, "three": V2, "old": V2}
PLACES: list[TopicPartition] = [("orders", 0), ("orders", 1), ("orders", 2), ("payments", 0)]
TIMEOUT_MS = 20_000
FAILURES = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR)
AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
LONGEST_WAIT = 3.0
Tag = tuple[str, int, int]


class Client:
    """A producer: it begins, writes into partitions, ends, and begins again, until it is fenced or killed."""

    numbers = itertools.count()

    def __init__(self, sim: Simulation, name: str) -> None:
        self.sim, self.name, self.version = sim, name, IDS[name]
        self.number = next(self.numbers)
        self.producer = (-1, -1)
        self.count = 0
        self.sequences: dict[TopicPartition, int] = defaultdict(int)
        self.left: list[TopicPartition] = []
        self.is_dead = False
        self.acknowledged: list[tuple[Tag, TopicPartition]] = []
        self.init()

    @property
    def tag(self) -> Tag:
        """The open transaction."""
        return self.name, self.number, self.count

    def init(self) -> None:
        asked = InitProducerIdRequest(self.name, TIMEOUT_MS)

        def answered(answer: Any) -> None:
            if not answer.error_code:
                self.producer = answer.producer_id, answer.producer_epoch
                self.sequences.clear()
                self.begin()
            else:
                self.stop_or_repeat(answer.error_code, self.init)

        self.send(lambda world, reply: world.coordinator.init_producer_id(asked, version=5, reply=reply), answered)

    def begin(self) -> None:
        self.count += 1
        self.left = self.sim.random.sample(PLACES, self.sim.random.randrange(1, 4)) * self.sim.random.randrange(1, 3)
        self.write()

    def write(self) -> None:
        if not self.left:
            self.end(self.sim.random.random() < 0.7)
            return
        where = self.left[-1]
        producer, tag, sequence = self.producer, self.tag, self.sequences[where]

        def append(world: World, reply: Callable[[ErrorCode], None]) -> None:
            try:
                world.coordinator.verify(self.name, *producer, where)
                world.partitions[where].append(*producer, sequence, tag)
                reply(ErrorCode.NONE)
            except KafkaError as refusal:
                reply(refusal.code)

        def added(world: World, reply: Callable[[ErrorCode], None], code: int) -> None:
            if code:
                reply(ErrorCode(code))
            else:
                append(world, reply)

        def produce(world: World, reply: Callable[[ErrorCode], None]) -> None:
            if self.version == V2:
                world.coordinator.add(
                    self.name, *producer, frozenset((where,)), V2, lambda code: added(world, reply, code)
                )
                return
            topics = [AddPartitionsToTxnTopic(where[0], [where[1]])]
            asked = AddPartitionsToTxnRequest([], self.name, *producer, topics)

            def told(answer: Any) -> None:
                result = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
                added(world, reply, result.partition_error_code)

            world.coordinator.add_partitions(asked, version=3, reply=told)

        def answered(code: ErrorCode) -> None:
            if not code:
                self.left.pop()
                self.sequences[where] += 1
                self.acknowledged.append((tag, where))
                self.write()
            else:
                self.stop_or_repeat(code, self.write)

        self.send(produce, answered)

    def end(self, committed: bool) -> None:
        version = 5 if self.version == V2 else 4
        asked = EndTxnRequest(self.name, *self.producer, committed)
        tag = self.tag

        def answered(answer: Any) -> None:
            if answer.error_code:
                self.stop_or_repeat(answer.error_code, lambda: self.end(committed))
                return
            self.sim.told[tag] = committed
            if self.version == V2:
                assert (answer.producer_id, answer.producer_epoch) != self.producer
                self.producer = answer.producer_id, answer.producer_epoch
                self.sequences.clear()
            self.begin()

        self.send(lambda world, reply: world.coordinator.end(asked, version=version, reply=reply), answered)

    def stop_or_repeat(self, code: int, again: Callable[[], None]) -> None:
        if code in AGAIN:
            self.sim.later(self.sim.random.choice((0.05, 0.3)), again)
        else:
            self.is_dead = True

    def send(self, request: Callable[[World, Any], None], answered: Callable[[Any], None]) -> None:
        """Send a request over a network that loses answers and, in version 2, delivers requests twice."""
        sim = self.sim
        is_over = False

        def arrived(answer: Any) -> None:
            nonlocal is_over
            if is_over or self.is_dead:
                return
            is_over = True
            answered(answer)

        def ask() -> None:
            request(sim.world, Tracked(sim, lambda answer: sim.later(0.001, lambda: arrived(answer))))

        sim.later(sim.random.choice((0, 0, 0.01)), ask)
        if self.version == V2 and sim.random.random() < 0.2:
            ignored = Tracked(sim, lambda answer: None)
            sim.replies.remove(ignored)

            def repeat() -> None:
                ignored.since = sim.world.clock.now
                sim.replies.append(ignored)
                request(sim.world, ignored)

            sim.later(sim.random.choice((0, 0.01, 1, 25)), repeat)


class Tracked(Reply[Any]):
    """A reply that must come once, and in time."""

    def __init__(self, sim: Simulation, then: Callable[[Any], None]) -> None:
        super().__init__()
        self.since = sim.world.clock.now
        self.then = then
        sim.replies.append(self)

    def __call__(self, response: Any) -> None:
        super().__call__(response)
        self.then(response)


class Simulation:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World()
        self.world.store.hold()
        self.world.markers.is_held = True
        self.told: dict[Tag, bool] = {}
        self.replies: list[Tracked] = []
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = itertools.count()
        old = new_state(next(self.world.ids), TIMEOUT_MS, self.world.clock.wall_ms())
        old = msgspec.structs.replace(old, producer_epoch=MAX_EPOCH - 6)
        self.world.store.log[self.world.coordinator.partition_of("old")].append(transaction_record("old", old))
        self.world.start()
        self.clients = [Client(self, name) for name in IDS]

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.world.clock.now + seconds, next(self.numbers), call))

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.02:
            self.restart()
        elif chance < 0.06:
            name = self.random.choice(list(IDS))
            for client in self.clients:
                if client.name == name and self.random.random() < 0.5:
                    client.is_dead = True  # else it is a zombie
            self.clients.append(Client(self, name))
        self.io()
        self.pass_time(self.random.choice((0, 0, 0.01, 0.1, 0.5)))

    def io(self) -> None:
        """Some records and markers are written, some fail."""
        for partition, waiting in list(self.world.store.waiting.items()):
            while waiting and self.random.random() < 0.7:
                failed = self.random.random() < 0.03
                self.world.store.release(partition, self.random.choice(FAILURES) if failed else ErrorCode.NONE)
        markers = self.world.markers
        while markers.waiting and self.random.random() < 0.7:
            markers.waiting.rotate(-self.random.randrange(len(markers.waiting)))
            failed = self.random.random() < 0.05
            markers.release(ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.NONE)

    def pass_time(self, seconds: float) -> None:
        end = self.world.clock.now + seconds
        while self.events and self.events[0][0] <= end:
            at, _, call = heapq.heappop(self.events)
            self.world.pass_time(max(at - self.world.clock.now, 0))
            call()
        self.world.pass_time(end - self.world.clock.now)
        late = [each for each in self.replies if each.is_open and self.world.clock.now - each.since > LONGEST_WAIT]
        if late:  # no write takes longer
            self.world.store.release_all()
        assert not [each for each in late if each.is_open], "somebody waits for ever"
        self.replies = [each for each in self.replies if each.is_open]

    def restart(self) -> None:
        """The broker dies: some pending writes are in the log. Late markers of version 2 may still come."""
        for partition in range(self.world.config.transaction_state_log_num_partitions):
            self.world.coordinator.unload(partition)
        for partition, waiting in self.world.store.waiting.items():
            landed = self.random.randrange(len(waiting) + 1)
            for number in range(len(waiting)):
                self.world.store.release(partition, ErrorCode.NONE if number < landed else ErrorCode.REQUEST_TIMED_OUT)
        markers = self.world.markers
        for where, marker, _, new_epoch in markers.waiting:
            if new_epoch and self.random.random() < 0.7:
                self.later(self.random.choice((0, 0.2, 1, 5)), partial(self.late_marker, where, marker))
        markers.waiting.clear()
        self.world.start()

    def late_marker(self, where: TopicPartition, marker: Marker) -> None:
        with suppress(KafkaError):
            self.world.partitions[where].end(marker, new_epoch=True)

    def finish(self) -> None:
        """All producers die and time passes: nothing is open, and every transaction has one outcome everywhere."""
        for client in self.clients:
            client.is_dead = True
        for _ in range(60):
            self.world.store.release_all()
            self.world.markers.release_all()
            self.pass_time(1.0)
        for shard in self.world.coordinator.shards.by_partition.values():
            for transaction in shard.transactions.values():
                assert transaction.is_settled
                assert transaction.state.status is not Status.ONGOING
        self.check_outcomes()
        self.check_epochs()

    def check_outcomes(self) -> None:
        outcomes: dict[Tag, set[bool]] = defaultdict(set)
        found: dict[TopicPartition, set[Tag]] = defaultdict(set)
        for where in PLACES:
            partition = self.world.partitions[where]
            open_batches: dict[int, list[Tag]] = defaultdict(list)
            for entry in partition.log:
                if entry.marker is None:
                    open_batches[entry.producer_id].append(entry.value)  # type: ignore[arg-type]
                    continue
                ended = open_batches.pop(entry.producer_id, [])
                assert len(set(ended)) <= 1, f"one marker has ended several transactions: {set(ended)}"
                for tag in ended:
                    outcomes[tag].add(entry.marker.committed)
                    found[where].add(tag)
            assert not any(open_batches.values()), f"still open in {where}: {dict(open_batches)}"
        for tag, seen in outcomes.items():
            assert len(seen) == 1, f"{tag} has two outcomes"
            if tag in self.told:
                assert seen == {self.told[tag]}, f"{tag} was told to have the other outcome"
        for client in self.clients:
            for tag, where in client.acknowledged:
                assert tag in found[where], f"a batch of {tag} in {where} is lost"

    def check_epochs(self) -> None:
        """In the log of an id, epochs of a producer id never decrease, and a producer id never comes back."""
        seen: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for log in self.world.store.log.values():
            for record in log:
                said = parse_transaction(record.key, record.value)
                assert said is not None
                name, state = said
                if state is not None:
                    seen[name].append((state.producer_id, state.producer_epoch))
        for name, told in seen.items():
            assert told == sorted(told), f"{name} goes back"


def run(seed: int, steps: int) -> Simulation:
    sim = Simulation(seed)
    for _ in range(steps):
        sim.step()
    sim.finish()
    return sim


@pytest.mark.parametrize("seed", range(40))
def test_transactions(seed: int) -> None:
    run(seed, 400)


def test_it_does_what_it_says() -> None:
    """The simulation covers its cases: both outcomes in both versions, fenced producers, and used-up epochs."""
    sims = [run(seed, 600) for seed in range(100, 105)]
    told = {(IDS[tag[0]], committed) for sim in sims for tag, committed in sim.told.items()}
    assert told == {(V1, True), (V1, False), (V2, True), (V2, False)}
    assert all(len(sim.told) > 30 for sim in sims)
    assert any(sim.world.state("old").previous_producer_id >= 0 for sim in sims)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_300))
def test_many_transactions(seed: int) -> None:
    run(seed, 3_000)
