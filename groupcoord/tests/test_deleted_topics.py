"""The offsets of deleted topics: the steps of their removal, and what stays if a topic is created again."""

from __future__ import annotations

import random

import pytest

from barnabas.groupcoord.config import GroupConfig
from barnabas.groupcoord.offsets import deleted_topics, retention
from barnabas.groupcoord.offsets.committed import Offsets
from barnabas.groupcoord.tests.harness import ORDERS, PAYMENTS, World
from barnabas.groupcoord.topics import Topic
from barnabas.wire.types import ZERO_UUID

AGAIN = Topic("orders", b"O" * 16, 3)


def tombstones(world: World) -> int:
    return sum(record.value is None for log in world.store.log.values() for record in log)


def test_only_groups_that_read_the_topic_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    for number in range(40):
        world.commit(1, group=f"g{number}", topic=PAYMENTS).get()
    world.commit(1, group="reader").get()
    for world_again in (world, world):
        looked: list[Offsets] = []
        places = Offsets.places

        def watched(offsets: Offsets) -> list[tuple[str, int]]:
            looked.append(offsets)
            return places(offsets)

        with monkeypatch.context() as patched:
            patched.setattr(Offsets, "places", watched)
            world_again.coordinator.topic_deleted("nobody reads it", b"x" * 16)
            assert len(looked) == 0
            world_again.coordinator.topic_deleted("orders", b"y" * 16)
            assert len(looked) == 1
        world.start()


def test_a_topic_of_many_groups_goes_in_steps_and_what_is_committed_meanwhile_stays() -> None:
    """Old clients' commits have no topic id: those after the deletion belong to the new topic of the same name."""
    world = World()
    groups = [f"g{number}" for number in range(deleted_topics.AT_ONCE + 200)]
    for group in groups:
        world.commit(1, group=group).get()
    world.clock.now += 1
    world.coordinator.topic_deleted("orders", ORDERS.topic_id)
    assert 0 < tombstones(world) <= deleted_topics.AT_ONCE
    assert world.coordinator.is_forgetting
    world.topics.topics[0] = AGAIN
    world.clock.now += 1
    again = [group for group in groups if world.committed(group)][:50]
    for group in again:
        world.commit(7, group=group, topic=AGAIN).get()
    world.pass_time(1)
    assert not world.coordinator.is_forgetting
    for started in (False, True):
        if started:
            world.start()
        left = {group: [each.offset for each in world.committed(group).values()] for group in groups}
        assert {group: found for group, found in left.items() if found} == {group: [7] for group in again}


def test_a_commit_that_is_not_durable_yet_is_forgotten_when_it_is() -> None:
    world = World()
    world.store.hold()
    reply = world.commit(1)
    world.coordinator.topic_deleted("orders", ORDERS.topic_id)
    assert world.coordinator.is_forgetting
    world.store.release_all()
    reply.get()
    world.pass_time(1)
    world.store.release_all()
    assert world.committed() == {}
    assert not world.coordinator.is_forgetting


def test_a_shard_that_goes_takes_what_was_left_along() -> None:
    world = World()
    for number in range(deleted_topics.AT_ONCE + 200):
        world.commit(1, group=f"g{number}").get()
    world.coordinator.topic_deleted("orders", ORDERS.topic_id)
    for partition in list(world.coordinator.shards.by_partition):
        world.coordinator.unload(partition)
    world.pass_time(1)
    assert not world.coordinator.is_forgetting


@pytest.mark.parametrize("seed", range(5))
def test_the_readers_of_a_topic_are_those_that_have_offsets_of_it(seed: int) -> None:
    dice = random.Random(seed)
    world = World()
    for _ in range(150):
        group, topic = f"g{dice.randrange(6)}", dice.choice((ORDERS, PAYMENTS))
        action = dice.random()
        if action < 0.7:
            world.commit(dice.randrange(9), group=group, topic=topic)
        elif action < 0.8:
            world.coordinator.topic_deleted(topic.name, ZERO_UUID)
        elif action < 0.9:
            world.start()
        else:
            world.pass_time(1)
        for shard in world.coordinator.shards.by_partition.values():
            has = {(where[0], name) for name, offsets in shard.offsets.items() for where in offsets.places()}
            assert has <= {(topic, name) for topic, names in shard.readers.items() for name in names}
            assert set().union(*shard.readers.values()) <= set(shard.offsets)
            assert all(shard.readers.values())


def test_a_round_of_expiry_is_made_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_LOOKED_AT_ONCE", 20)
    world = World(GroupConfig(offsets_retention_minutes=1))
    for number in range(50):
        world.commit(1, group=f"g{number}").get()
    world.clock.now = world.coordinator.deadlines.next()
    left = []
    while any(world.committed(f"g{number}") for number in range(50)):
        world.coordinator.deadlines.fire_due()
        left.append(sum(bool(world.committed(f"g{number}")) for number in range(50)))
    assert left == [40, 30, 20, 10, 0]
    world.commit(1, group="g7").get()
    world.pass_time(world.config.offsets_retention_check_interval_ms / 1000)
    assert world.committed("g7") == {}, "the next round comes after the interval, as before"


def test_a_kill_between_two_steps_leaves_nothing_to_a_topic_made_again() -> None:
    world = World()
    groups = [f"g{number}" for number in range(deleted_topics.AT_ONCE + 200)]
    for group in groups:
        world.commit(1, group=group).get()
    world.clock.now += 1
    world.coordinator.topic_deleted("orders", ORDERS.topic_id)
    assert world.coordinator.is_forgetting
    world.topics.topics[0] = Topic("orders", AGAIN.topic_id, 3, since_ms=world.clock.wall_ms())
    world.clock.now += 1
    for started in range(2):
        world.start()
        assert [group for group in groups if world.committed(group)] == groups[:5] * started
        for group in groups[:5]:
            world.commit(7, group=group, topic=AGAIN).get()
