"""What strangers can make a coordinator remember is bounded."""

from __future__ import annotations

import pytest

from barnabas.groupcoord.config import GroupConfig
from barnabas.groupcoord.memory_budget import MemoryBudget, weight
from barnabas.groupcoord.tests.harness import World
from barnabas.wire.errors import ErrorCode

SMALL = GroupConfig(most_bytes=1 << 20)
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED


def counted(world: World) -> int:
    """What is in fact there, beside the groups themselves and ids that were given out."""
    return sum(weight(member) for group in world.classic_groups.values() for member in group.members.by_id.values())


@pytest.mark.parametrize("version", [3, 9], ids=["members at once", "ids that nobody comes back with"])
def test_a_million_joins_are_bounded_and_leave_room_for_those_who_are_there(version: int) -> None:
    world = World(SMALL)
    here = world.stable(2, group="honest")
    generation = world.classic_groups["honest"].generation
    answers = [world.join(group=f"group-{n % 7}", version=version) for n in range(5000)]
    refused = [reply for reply in answers if not reply.is_open and reply.get().error_code == FULL]
    assert len(refused) > 3000
    assert world.coordinator.memory.used <= SMALL.most_bytes + 10_000
    assert world.heartbeat(here[0], generation, group="honest") == ErrorCode.NONE
    world.pass_time(400)
    assert world.new_member(group="later").get().error_code == ErrorCode.NONE, "what has expired makes room"


def test_large_metadata_and_assignments_count() -> None:
    world = World(SMALL)
    large = (("range", bytes(600_000)),)
    assert world.join(version=3, protocols=large, group="a").get().error_code == ErrorCode.NONE
    assert world.join(version=3, protocols=large, group="b").get().error_code == FULL
    (member,) = world.stable(1, group="c")
    group = world.classic_groups["c"]
    assert world.sync(member, group.generation, {member: bytes(600_000)}, group="c").get().error_code == FULL


def test_names_of_groups_count() -> None:
    world = World(SMALL)
    told = [world.join(version=3, group=f"{n}-" + "g" * 10_000).get().error_code for n in range(200)]
    assert told.count(FULL) > 100


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
    memory = MemoryBudget(10)
    memory.take(6)
    memory.check(4)
    with pytest.raises(Exception, match="more than 10 bytes"):
        memory.check(5)
    memory.take(-6)
    memory.check(10)
