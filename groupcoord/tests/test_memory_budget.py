"""What untrusted clients can make a coordinator remember is bounded."""

from __future__ import annotations

import pytest

from barnabas.groupcoord.config import GroupConfig
from barnabas.groupcoord.memory_budget import NEWCOMER_SECONDS, MemoryBudget, weight
from barnabas.groupcoord.shares import client_at
from barnabas.groupcoord.tests.harness import RANGE, Clock, World
from barnabas.wire.errors import ErrorCode, KafkaError

SMALL = GroupConfig(most_bytes=1 << 20)
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
#: There is no room now, but dropping newcomers may soon make some.
LATER = ErrorCode.COORDINATOR_NOT_AVAILABLE


def counted(world: World) -> int:
    """The bytes actually used, besides the groups themselves and ids that were given out."""
    return sum(weight(member) for group in world.classic_groups.values() for member in group.members.by_id.values())


@pytest.mark.parametrize("version", [3, 9], ids=["members at once", "ids that nobody comes back with"])
def test_a_million_joins_are_bounded_and_leave_room_for_those_who_are_there(version: int) -> None:
    world = World(SMALL)
    here = world.stable(2, group="honest")
    generation = world.classic_groups["honest"].generation
    answers = [world.join(group=f"group-{n % 7}", version=version) for n in range(5000)]
    refused = [reply for reply in answers if not reply.is_open and reply.get().error_code == LATER]
    assert len(refused) > 3000
    assert world.coordinator.memory.used <= SMALL.most_bytes + 10_000
    assert world.heartbeat(here[0], generation, group="honest") == ErrorCode.NONE
    world.pass_time(400)
    assert world.new_member(group="later").get().error_code == ErrorCode.NONE, "what has expired makes room"


def test_large_metadata_and_assignments_count() -> None:
    world = World(SMALL)
    large = (("range", bytes(400_000)),)
    assert world.join(version=3, protocols=large, group="a").get().error_code == ErrorCode.NONE
    assert world.join(version=3, protocols=large, group="b").get().error_code == LATER
    (member,) = world.stable(1, group="c")
    group = world.classic_groups["c"]
    assert world.sync(member, group.generation, {member: bytes(400_000)}, group="c").get().error_code == LATER


def test_names_of_groups_count() -> None:
    world = World(SMALL)
    told = [world.join(version=3, group=f"{n}-" + "g" * 10_000).get().error_code for n in range(200)]
    assert told.count(LATER) > 100


def full_of_newcomers(version: int = 3) -> World:
    """One address has created groups until it was refused."""
    world = World(SMALL)
    large = (("range", bytes(50_000)),) if version == 3 else RANGE
    for number in range(1000):
        answer = world.join(version=version, group=f"hoard-{number}", protocols=large, session_ms=1_800_000)
        if answer.get().error_code == LATER:
            return world
    raise AssertionError("it was never refused")


@pytest.mark.parametrize("version", [3, 9], ids=["members", "ids that nobody comes back with"])
def test_a_hoarder_leaves_room_for_groups_of_others(version: int) -> None:
    world = full_of_newcomers(version)
    assert world.new_member(group="honest", host="/10.0.0.2").get().error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [3, 9], ids=["members", "ids that nobody comes back with"])
def test_newcomers_that_are_not_heard_of_make_room_for_their_own_client(version: int) -> None:
    world = full_of_newcomers(version)
    world.pass_time(NEWCOMER_SECONDS)
    groups = len(world.classic_groups)
    assert world.new_member(group="honest").get().error_code == ErrorCode.NONE
    pending = sum(len(group.members.pending) for group in world.classic_groups.values())
    left = pending + sum(len(group.members.by_id) for group in world.classic_groups.values())
    assert left > groups // 2, "no more of them than it takes"


def test_members_that_have_synced_or_send_heartbeats_make_no_room() -> None:
    world = full_of_newcomers()
    (synced,) = world.classic_groups["hoard-0"].members.by_id
    world.sync(synced, 1, group="hoard-0", protocol="range")
    (heard,) = world.classic_groups["hoard-1"].members.by_id
    world.pass_time(NEWCOMER_SECONDS)
    assert world.heartbeat(heard, 1, group="hoard-1") == ErrorCode.NONE
    for number in range(30):
        world.join(version=3, group=f"more-{number}", protocols=(("range", bytes(50_000)),))
    assert world.heartbeat(synced, 1, group="hoard-0") == ErrorCode.NONE
    assert world.heartbeat(heard, 1, group="hoard-1") == ErrorCode.NONE
    assert not world.classic_groups["hoard-2"].members.by_id


def test_who_has_nothing_that_makes_room_is_told_so() -> None:
    world = World(SMALL)
    large = (("range", bytes(400_000)),)
    member = world.join(version=3, protocols=large, group="a").get()
    assert world.sync(member.member_id, 1, {member.member_id: b"x"}, group="a").get().error_code == ErrorCode.NONE
    assert world.join(version=3, protocols=large, group="b").get().error_code == FULL


def test_all_of_an_ipv6_network_is_one_client() -> None:
    world = World(SMALL)
    large = (("range", bytes(400_000)),)
    assert world.join(version=3, protocols=large, group="a", host="/2001:db8::1").get().error_code == ErrorCode.NONE
    assert world.join(version=3, protocols=large, group="b", host="/2001:db8::2").get().error_code == LATER
    assert client_at("::ffff:10.0.0.1") == client_at("10.0.0.1")
    assert client_at("what:ever") == "what:ever"


def test_all_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(SMALL)
    before = world.coordinator.memory.used
    members = world.stable(3)
    assert counted(world) > 0
    world.leave(*((member, None) for member in members))
    assert counted(world) == 0
    for partition in range(world.config.offsets_topic_num_partitions):
        world.coordinator.unload(partition)
    assert world.coordinator.memory.used == before == 0


def test_what_is_restored_is_let_in_though_the_room_is_full() -> None:
    world = World()
    world.stable(3)
    world.config = GroupConfig(most_bytes=1)
    world.start()
    assert len(world.describe().members) == 3
    assert world.coordinator.memory.used > 1


def test_a_room_counts() -> None:
    memory = MemoryBudget(100, Clock())
    memory.check("one", 50)
    memory.take("one", 50)
    memory.check("two", 25)
    with pytest.raises(KafkaError, match="two has 0 bytes, and 50 are free"):
        memory.check("two", 26)
    with pytest.raises(KafkaError):
        memory.check("one", 1)
    memory.take("one", -50)
    memory.check("one", 50)
