"""Hours of group life with clients that crash, retry and come back, and a store that is slow or fails.

All randomness comes from one seed, so a failing seed always fails.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.groupcoord.classic.group import ClassicGroup
from barnabas.groupcoord.config import GroupConfig
from barnabas.groupcoord.memory_budget import PENDING_BYTES, weight
from barnabas.groupcoord.tests.harness import ORDERS, MemoryStore, Reply, World, subscription
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.messages.offset_commit import OffsetCommitResponse
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

SESSIONS_MS = (6_000, 10_000, 15_000)
REBALANCES_MS = (1_000, 5_000, 12_000)
LONGEST_WRITE = 2.0
LONGEST_WAIT = max(REBALANCES_MS) / 1000 + LONGEST_WRITE
FAILURES = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR)
GROUPS = ("a", "b", "c")
SUBSCRIPTION = subscription("orders")
PROTOCOLS = ([("range", SUBSCRIPTION)], [("sticky", SUBSCRIPTION), ("range", SUBSCRIPTION)])


class Tracked(Reply[Any]):
    """A reply that the simulation expects once and in time; `then` is the client that waits for it."""

    def __init__(self, sim: Simulation, what: str, then: Callable[[Any], None]) -> None:
        super().__init__()
        self.since = sim.world.clock.now
        self.what = what
        self.then = then
        sim.replies.append(self)

    def __call__(self, response: Any) -> None:
        super().__call__(response)
        self.then(response)


class Client:
    """A consumer: it joins, syncs after joining, sends heartbeats, commits, leaves; or it just stops."""

    def __init__(self, sim: Simulation, instance: str | None) -> None:
        choose = sim.random.choice
        self.sim = sim
        self.group = choose(GROUPS)
        self.instance = instance
        self.version = sim.random.randrange(5, 10) if instance else sim.random.randrange(10)
        self.session_ms = choose(SESSIONS_MS)
        self.rebalance_ms = choose(REBALANCES_MS)
        self.protocols = choose(PROTOCOLS)
        self.member_id = ""
        self.generation = -1
        self.is_stable = False
        self.is_alive = True
        self.waits_for: Tracked | None = None

    def join(self) -> None:
        self.is_stable = False
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(*each) for each in self.protocols],
        )
        reply = Tracked(self.sim, f"join {self.group}", lambda answer: self._joined(reply, answer))
        self.waits_for = reply
        self.sim.world.coordinator.join(request, version=self.version, client_id="c", client_host="/h", reply=reply)

    def _joined(self, reply: Tracked, answer: JoinGroupResponse) -> None:
        if not answer.error_code:
            self.sim.check_joined(self, answer)
        if not self.is_alive or reply is not self.waits_for:
            return
        self.waits_for = None
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            if self.sim.random.random() < 0.9:
                self.join()
        elif answer.error_code:
            self._refused(answer.error_code)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            if self.sim.random.random() < 0.95:
                self._sync(answer)

    def _sync(self, joined: JoinGroupResponse) -> None:
        assigns = joined.leader == joined.member_id and not joined.skip_assignment
        plan = [
            SyncGroupRequestAssignment(each.member_id, f"{joined.generation_id}".encode())
            for each in joined.members
            if assigns
        ]
        request = SyncGroupRequest(
            self.group, self.generation, self.member_id, self.instance, "consumer", joined.protocol_name, plan
        )
        reply = Tracked(self.sim, f"sync {self.group}", lambda answer: self._synced(reply, answer))
        self.waits_for = reply
        self.sim.world.coordinator.sync(request, version=4, reply=reply)

    def _synced(self, reply: Tracked, answer: SyncGroupResponse) -> None:
        if not self.is_alive or reply is not self.waits_for:
            return
        self.waits_for = None
        if answer.error_code:
            self._refused(answer.error_code)
            return
        # The assignment's generation is the requested one: no member gets another's.
        assert answer.assignment == f"{self.generation}".encode()
        self.sim.check_protocol(self.group, self.generation, answer.protocol_name)
        self.is_stable = True

    def heartbeat(self) -> None:
        self._refused(
            self.sim.world.heartbeat(self.member_id, self.generation, group=self.group, instance=self.instance)
        )

    def commit(self) -> None:
        sim = self.sim
        sim.last_offset += 1
        where, offset = (self.group, sim.random.randrange(ORDERS.partitions)), sim.last_offset
        reply = sim.world.commit(
            offset, self.member_id, self.generation, group=self.group, partition=where[1], instance=self.instance
        )
        sim.commits.append((where, offset, reply))

    def leave(self) -> None:
        self.sim.world.leave((self.member_id, self.instance), group=self.group)
        self.is_alive = False

    def _refused(self, error: int) -> None:
        if error == ErrorCode.FENCED_INSTANCE_ID:
            self.is_alive = False
        elif error == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if error:
            self.is_stable = False

    def act(self) -> None:
        chance = self.sim.random.random()
        if self.waits_for is not None:
            if chance < 0.05:
                self.join()  # its request timed out: it connects and asks again
        elif not self.is_stable:
            self.join()
        elif chance < 0.70:
            self.heartbeat()
        elif chance < 0.90:
            self.commit()
        elif chance < 0.94:
            self.protocols = self.sim.random.choice(PROTOCOLS)
            self.join()
        elif chance < 0.97:
            self.leave()


class Simulation:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        delay = self.random.choice((0, 0, 500, 3_000))
        limit = self.random.choice((3, 1_000))
        self.config = GroupConfig(group_initial_rebalance_delay_ms=delay, group_max_size=limit)
        self.store = MemoryStore()
        self.world = World(self.config, store=self.store)
        self.store.hold()
        self.replies: list[Tracked] = []
        self.clients: list[Client] = []
        self.commits: list[tuple[tuple[str, int], int, Reply[OffsetCommitResponse]]] = []
        self.last_offset = 0
        self.releases: list[float] = []
        self._forget_generations()

    def _forget_generations(self) -> None:
        self.lives: list[ClassicGroup] = []
        self.protocols: dict[tuple[int, int], str | None] = {}
        self.leaders: dict[tuple[int, int], str] = {}
        self.highest: dict[int, int] = defaultdict(int)

    # --- invariants ---------------------------------------------------------------------------------------------------

    def life_of(self, group_id: str) -> int:
        """A number for the group's current life in this coordinator; a recreated group gets another one."""
        group = self.world.classic_groups[group_id]
        if group not in self.lives:
            self.lives.append(group)
        return self.lives.index(group)

    def check_joined(self, client: Client, answer: JoinGroupResponse) -> None:
        life = self.life_of(client.group)
        generation = (life, answer.generation_id)
        assert answer.generation_id >= self.highest[life]
        self.highest[life] = answer.generation_id
        self.check_protocol(client.group, answer.generation_id, answer.protocol_name)
        if answer.members:
            assert answer.leader == answer.member_id
            # A static member may lead the same generation under a new id.
            who = client.instance or answer.member_id
            assert self.leaders.setdefault(generation, who) == who
            assert answer.member_id in {each.member_id for each in answer.members}

    def check_protocol(self, group_id: str, generation: int, protocol: str | None) -> None:
        key = (self.life_of(group_id), generation)
        assert self.protocols.setdefault(key, protocol) == protocol

    def check_waits(self) -> None:
        self.replies = [reply for reply in self.replies if reply.is_open]
        now = self.world.clock.now
        for reply in self.replies:
            assert now - reply.since <= LONGEST_WAIT + 0.001, f"{reply.what} waits since {reply.since}, now {now}"

    def check_room(self) -> None:
        """The bytes counted for members and groups are those that they use."""
        groups = self.world.classic_groups.values()
        taken = sum(
            group._weight
            + PENDING_BYTES * len(group.members.pending)
            + sum(weight(member) for member in group.members.by_id.values())
            for group in groups
        )
        assert self.world.coordinator.memory.used == taken

    def check_offsets(self) -> None:
        """Nothing is visible that is not durable."""
        for group_id in GROUPS:
            image = self.store.image(self.world.coordinator.partition_of(group_id))
            in_log = {
                (topic, index): value.offset
                for (group, topic, index), value in image.offsets.items()
                if group == group_id
            }
            seen = {where: position[0] for where, position in self.world.committed(group_id).items()}
            assert seen == in_log

    def check_acknowledged(self) -> None:
        """When nothing is in flight, the last acknowledged commit is the visible one.

        Only a write that was in flight during a restart may have survived its refusal.
        """
        acknowledged: dict[tuple[str, int], int] = {}
        uncertain: set[tuple[tuple[str, int], int]] = set()
        for where, offset, reply in self.commits:
            error = reply.get().topics[0].partitions[0].error_code
            if error == ErrorCode.NONE:
                acknowledged[where] = offset
            elif error == ErrorCode.NOT_COORDINATOR:
                uncertain.add((where, offset))
        seen = {
            (group_id, index): position[0]
            for group_id in GROUPS
            for (_, index), position in self.world.committed(group_id).items()
        }
        for where in acknowledged.keys() | seen.keys():
            if seen.get(where) != acknowledged.get(where):
                assert (where, seen[where]) in uncertain
                assert seen[where] > acknowledged.get(where, -1)

    # --- what happens -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        chance = self.random.random()
        alive = [client for client in self.clients if client.is_alive]
        if chance < 0.04 and len(alive) < 12:
            client = Client(self, None)
            self.clients.append(client)
            client.join()
        elif chance < 0.07:
            instance = self.random.choice(("s1", "s2", "s3"))
            client = Client(self, instance)
            for other in alive:
                if other.instance == instance and other.group == client.group:
                    other.is_alive = self.random.random() < 0.3  # otherwise it was killed and this is its successor
            self.clients.append(client)
            client.join()
        elif chance < 0.09 and alive:
            self.random.choice(alive).is_alive = False
        elif chance < 0.092:
            self.restart()
        elif alive:
            self.random.choice(alive).act()
        self.write()
        self.pass_time(self.random.choice((0, 0, 0.01, 0.3, 1.0)))

    def write(self) -> None:
        """Complete some appends, of random partitions, but in order within each."""
        partitions = [partition for partition, waiting in self.store.waiting.items() if waiting]
        self.random.shuffle(partitions)
        for partition in partitions:
            while self.store.waiting[partition] and self.random.random() < 0.5:
                failed = self.random.random() < 0.05
                self.store.release(partition, self.random.choice(FAILURES) if failed else ErrorCode.NONE)

    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)
        if seconds >= 1:  # no write takes longer than this here
            self.store.release_all()
        self.check_waits()
        self.check_room()

    def restart(self) -> None:
        """Stop the broker cleanly and start it again."""
        for partition in range(self.config.offsets_topic_num_partitions):
            self.world.coordinator.unload(partition)
        self.store.release_all()
        self._forget_generations()
        self.world.start()
        self.check_offsets()

    def finish(self) -> None:
        """Stop everything. In the end nobody is left waiting, and a restart changes nothing."""
        for client in self.clients:
            client.is_alive = False
        for _ in range(120):
            self.pass_time(1.0)
        assert not [reply.what for reply in self.replies if reply.is_open]
        for group in list(self.world.classic_groups.values()):
            assert group.is_idle
        self.check_acknowledged()
        before = {group_id: self.world.committed(group_id) for group_id in GROUPS}
        self.world.start()
        for group_id, offsets in before.items():
            assert self.world.committed(group_id) == offsets
        for _ in range(60):  # if the record of the empty generation failed, its members are back, and expire
            self.pass_time(1.0)
        assert not any(self.world.describe(group_id).members for group_id in GROUPS)


def run(seed: int, steps: int) -> None:
    sim = Simulation(seed)
    for number in range(steps):
        sim.step()
        if number % 50 == 0:
            sim.check_offsets()
    sim.finish()


@pytest.mark.parametrize("seed", range(40))
def test_group_life(seed: int) -> None:
    run(seed, 400)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_400))
def test_long_group_life(seed: int) -> None:
    run(seed, 4_000)


def test_stable_members_are_undisturbed_for_an_hour() -> None:
    """Of a thousand groups, a hundred send heartbeats: these stay, the others go, and the deadline heap is small."""
    world = World()
    leaders = [world.stable(group=f"g{number}")[0] for number in range(1_000)]
    for _ in range(1_200):
        world.pass_time(3)
        for number in range(0, 1_000, 10):
            assert world.heartbeat(leaders[number], 1, group=f"g{number}") == ErrorCode.NONE
    assert world.describe("g10").group_state == "Stable"
    assert world.describe("g11").group_state == "Dead"  # no members left, nothing committed: forgotten
    assert len(world.coordinator.deadlines) < 2_500
