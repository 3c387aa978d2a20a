"""One node is paused while clients send the others every request that makes one node ask another.

Requests that do not need that node are answered. Those that need it go on when it comes back; none stays stuck.
"""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.client.admin import create_partitions, create_topic, delete_topic, set_topic_config
from barnabas.client.cluster import GROUP, TRANSACTION, Cluster
from barnabas.client.connection import Connection
from barnabas.client.errors import ClientError, check
from barnabas.client.groups import Committed, commit
from barnabas.client.produce import Batch, produce
from barnabas.client.transactional import TransactionalProducer, write
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.produce import PartitionProduceResponse
from compat_tests.history.moves import reassign, under_way
from compat_tests.nodes.broker import Nodes
from compat_tests.waiting import DEADLINE, changed, until

#: Each node has two partitions and a coordinator of each kind.
PARTITIONS = 6
SETTINGS = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
#: The test alone ends the hang.
SETTINGS |= {"barnabas.node.hang.ms": "600000"}
#: More producer ids than a node has in reserve.
PRODUCER_IDS = 1500
PATIENCE = 60.0
NODES = (1, 2, 3)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path, SETTINGS) as server:
        yield server


class Asked:
    """A request that a thread of its own makes. `answered` raises its error."""

    def __init__(self, what: str, ask: Callable[[], None]) -> None:
        self.what, self._ask = what, ask
        self._failure: Exception | None = None
        self.is_over = False
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._ask()
        except Exception as error:
            self._failure = error
        self.is_over = True
        changed()

    def answered(self) -> None:
        until(lambda: self.is_over, f"an answer to: {self.what}", DEADLINE)
        if self._failure is not None:
            raise AssertionError(f"{self.what}: {self._failure}") from self._failure


class AtOne(Cluster):
    """A client that also sends its first node the changes that other clients send to the controller."""

    def find_controller(self) -> Connection:
        return self._any_broker()


class World:
    """A broker of three nodes with a topic, and a group and transactional ids of each coordinator."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        with self.at(1) as cluster:
            for name in ("t", "moved"):
                create_topic(cluster, name, {}, partitions=PARTITIONS)
            self.groups = {node: names[0] for node, names in self._coordinated(cluster, GROUP).items()}
            self.ids = self._coordinated(cluster, TRANSACTION)
            for name in itertools.chain(*self.ids.values()):  # each gets its id, which the owner reserves
                TransactionalProducer(cluster, name, timeout_ms=60_000).begin()
            self.leaders = cluster.leaders("t")
        assert sorted(self.leaders.values()) == sorted(2 * NODES)

    def at(self, node: int) -> Cluster:
        """A client whose first node is the given one."""
        return AtOne(f"127.0.0.1:{self.nodes.port + node - 1}", patience=PATIENCE)

    def _coordinated(self, cluster: Cluster, kind: int) -> dict[int, list[str]]:
        """Four names for each node that it coordinates."""
        found: dict[int, list[str]] = {node: [] for node in NODES}
        for number in itertools.count():
            name = f"name{number}"
            answer = cluster.any(FindCoordinatorRequest(name, kind), FindCoordinatorResponse, version=3)
            if answer.error_code == ErrorCode.NONE:
                found[answer.node_id].append(name)
            if all(len(names) >= 4 for names in found.values()):
                return found
        raise AssertionError

    def led_by(self, node: int) -> list[int]:
        return [index for index, leader in self.leaders.items() if leader == node]

    # --- what is asked ------------------------------------------------------------------------------------------------

    def produces(self, begin: int, leader: int) -> None:
        """Write to the partitions of one node."""
        with self.at(begin) as cluster:
            batches = [Batch("t", index, build_batch([Record(None, b"v", 0)])) for index in self.led_by(leader)]
            _all_taken(produce(cluster, batches))

    def commits(self, begin: int, coordinator: int) -> None:
        """Commit offsets of a group."""
        with self.at(begin) as cluster:
            told = commit(cluster, self.groups[coordinator], {("t", 0): Committed(1, "", -1)})
            assert set(told.values()) == {ErrorCode.NONE}

    def begun(self, begin: int, transactional_id: str, leader: int) -> TransactionalProducer:
        """A transaction with a record in each partition of one node, and an offset of a group that it coordinates."""
        producer = TransactionalProducer(self.at(begin), transactional_id, timeout_ms=60_000)
        producer.begin()
        self.write(producer, leader)
        return producer

    def write(self, producer: TransactionalProducer, leader: int) -> None:
        batches = []
        for index in self.led_by(leader):
            data = build_batch(
                [Record(None, b"v", 0)],
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=0,
                is_transactional=True,
            )
            batches.append(Batch("t", index, data))
        _all_taken(write(producer.cluster, producer.transactional_id, batches, patience=PATIENCE))
        producer.commit_offsets(self.groups[leader], {("t", 0): Committed(1, "", -1)})

    def transacts(self, begin: int, coordinator: int, leader: int, which: int) -> None:
        """Run a whole transaction, and begin the next one, which waits until all markers are written."""
        producer = self.begun(begin, self.ids[coordinator][which], leader)
        producer.end(commit=True)
        producer.begin()
        producer.cluster.close()

    def changes(self, begin: int) -> None:
        """Make each change that only the owner of the metadata can make."""
        with self.at(begin) as cluster:
            name = f"by-{begin}"
            check(create_topic(cluster, name, {}, partitions=3).error_code, name)
            create_partitions(cluster, name, 6)
            set_topic_config(cluster, name, {"retention.ms": "1000"})
            code, why = delete_topic(cluster, name)
            assert code == ErrorCode.NONE, why

    def takes_producer_ids(self, begin: int) -> None:
        """Take more producer ids than that node has in reserve."""
        with self.at(begin) as cluster:
            asked = InitProducerIdRequest(transactional_id=None)
            given = {cluster.any(asked, InitProducerIdResponse).producer_id for _ in range(PRODUCER_IDS)}
            assert len(given) == PRODUCER_IDS

    def moves(self, begin: int) -> None:
        """Move two partitions to the next node."""
        with self.at(begin) as cluster:
            to = begin % len(NODES) + 1
            codes = reassign(cluster, {("moved", begin - 1): to, ("moved", begin + 2): to})
            assert set(codes.values()) == {ErrorCode.NONE}, codes
            until(lambda: not under_way(cluster), "all have moved")


def _all_taken(told: dict[TopicPartition, PartitionProduceResponse]) -> None:
    refused = {at: each.error_code for at, each in told.items() if each.error_code}
    if refused:
        raise ClientError(f"refused: {refused}")


@pytest.mark.parametrize("still", [1, *(pytest.param(node, marks=pytest.mark.long) for node in (2, 3))])
def test_a_node_that_stands_still_holds_up_those_alone_who_need_it(nodes: Nodes, still: int) -> None:
    world = World(nodes)
    live = [node for node in NODES if node != still]
    pairs = list(itertools.product(live, live))
    ending = [world.begun(node, world.ids[node][0], still) for node in live]
    pid = nodes.pids()[still]
    nodes.send(still, signal.SIGSTOP)
    waiting = [Asked(f"changes at {node}", lambda node=node: world.changes(node)) for node in live]  # type: ignore[misc]
    waiting += [Asked(f"moves at {node}", lambda node=node: world.moves(node)) for node in live]  # type: ignore[misc]
    waiting += [
        Asked(f"producer ids of {node}", lambda node=node: world.takes_producer_ids(node))  # type: ignore[misc]
        for node in live
    ]
    for node, (what, ask) in itertools.product(
        live,
        (
            ("records for {still}", lambda node: world.produces(node, still)),
            ("commits with {still}", lambda node: world.commits(node, still)),
            ("a transaction of {still}, records for {node}", lambda node: world.transacts(node, still, node, node)),
            ("a transaction of {node}, records for {still}", lambda node: world.transacts(node, node, still, 1)),
        ),
    ):
        waiting.append(Asked(what.format(still=still, node=node), lambda ask=ask, node=node: ask(node)))  # type: ignore[misc]
    for begin, other in pairs:
        world.produces(begin, other)
        world.commits(begin, other)
        world.transacts(begin, other, begin, 2 + (begin == live[0]))
    for producer in ending:
        producer.end(commit=True)  # its coordinator alone decides it; the marker comes later
    assert nodes.pids()[still] == pid, "all this was answered while the node stood still"
    nodes.send(still, signal.SIGCONT)
    for each in waiting:
        each.answered()
    for producer in ending:
        producer.begin()
        producer.cluster.close()
    for begin in NODES:
        world.changes(begin)
        world.moves(begin)
        for other in NODES:
            world.transacts(begin, other, other, 0)
    assert nodes.stop() == 0
    assert nodes.errors() == []
