"""Offsets that are also kept in a second store: what it is told, who waits for it, and how its answers are used."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from barnabas.groupcoord.config import GroupConfig
from barnabas.groupcoord.offsets.elsewhere import Change, Done, Places, Seen, newest
from barnabas.groupcoord.tests.harness import World
from barnabas.groupcoord.tests.test_transactional_offsets import commit as commit_in_transaction
from barnabas.groupcoord.tests.test_transactional_offsets import end
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records.offset_commit import OffsetCommitValue

WEEK = 7 * 24 * 3600.0
WHERE = ("orders", 0)


class Beside:
    """Notes what it is told. With `holds`, its answers wait until `let_go`."""

    def __init__(self, alone: bool = False) -> None:
        self.alone = alone
        self.told: list[tuple[str, tuple[str, int], int | None]] = []
        self.stored: list[tuple[str, tuple[str, int], int | None]] = []
        self.cleared: list[Places] = []
        self.partitions: list[int] = []
        self.left: list[int] = []
        self.holds = False
        self.gone = True  # whether removals succeed
        self.kept: set[str] = set()  # groups that somebody has written recently
        self._held: list[Callable[[], None]] = []

    def changed(self, group_id: str, changed: Sequence[Change]) -> None:
        self.told += [(group_id, where, None if value is None else value.offset) for where, value in changed]

    def after(self, group_id: str, changed: Sequence[Change], then: Callable[[], None]) -> None:
        if self.holds:
            self._held.append(then)
        else:
            then()

    def store(self, group_id: str, changed: Sequence[Change], done: Done) -> None:
        self.stored += [(group_id, where, None if value is None else value.offset) for where, value in changed]
        done(ErrorCode.NONE)

    def clear(self, places: Places, before_ms: int, then: Callable[[Places | None], None]) -> None:
        self.cleared.append(places)
        then({group: of for group, of in places.items() if group not in self.kept} if self.gone else None)

    def loaded(self, partition: int) -> None:
        self.partitions.append(partition)

    def unloaded(self, partition: int) -> None:
        self.left.append(partition)

    def let_go(self, world: World) -> None:
        for then in self._held:
            world.coordinator.in_turn(then)


def kept_beside(alone: bool = False, config: GroupConfig | None = None) -> tuple[World, Beside]:
    world, beside = World(config), Beside(alone)
    world.coordinator.keep_elsewhere(beside)
    return world, beside


def test_it_is_told_what_is_in_the_log_and_the_answer_waits_for_it() -> None:
    world, beside = kept_beside()
    beside.holds = True
    reply = world.commit(5)
    assert beside.told == [("g", WHERE, 5)]
    assert reply.is_open
    assert world.committed()[WHERE][0] == 5
    beside.let_go(world)
    assert reply.get().topics[0].partitions[0].error_code == ErrorCode.NONE


def test_what_the_log_has_refused_is_not_told() -> None:
    world, beside = kept_beside()
    assert world.commit_error(5, partition=99) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.store.hold()
    reply = world.commit(6)
    world.store.release_all(ErrorCode.KAFKA_STORAGE_ERROR)
    assert reply.get().topics[0].partitions[0].error_code
    assert beside.told == []


def test_a_transaction_s_offsets_are_told_when_it_is_committed() -> None:
    world, beside = kept_beside()
    for committed in (False, True):
        assert commit_in_transaction(world, 9) == ErrorCode.NONE
        assert beside.told == []
        end(world, committed)
    assert beside.told == [("g", WHERE, 9)]


def test_alone_it_has_the_commits_and_the_log_has_none() -> None:
    world, beside = kept_beside(alone=True)
    assert world.commit_error(5) == ErrorCode.NONE
    assert beside.stored == [("g", WHERE, 5)]
    assert (beside.told, world.committed()) == ([], {})
    assert world.commit_error(5, "stranger", 3) == ErrorCode.GROUP_ID_NOT_FOUND, "the group's rules hold"
    assert commit_in_transaction(world, 9) == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_what_expires_is_removed_there_first() -> None:
    world, beside = kept_beside()
    world.commit(5).get()
    beside.gone = False
    world.pass_time(WEEK * 2)
    assert beside.cleared[0] == {"g": [WHERE]}
    assert world.committed()[WHERE][0] == 5, "it is not gone there: here it stays, too"
    beside.gone = True
    world.pass_time(1_200)
    assert world.committed() == {}
    assert beside.told == [("g", WHERE, 5)], "the removal was asked for, not told"
    assert "g" not in world.coordinator.groups


def test_more_offsets_expire_than_are_removed_at_one_time() -> None:
    world, beside = kept_beside(config=GroupConfig(offsets_retention_check_interval_ms=86_400_000))
    for number in range(1200):
        world.commit(5, group=f"g{number}").get()
    beside.kept = {f"g{number}" for number in range(600, 1200)}
    world.pass_time(WEEK + 1_200)
    assert set(world.coordinator.groups) == beside.kept, "a piece of which nothing is gone is not the last one"
    assert len(beside.cleared) == 3
    assert sum(len(of) for places in beside.cleared for of in places.values()) == 1200


def test_alone_the_log_forgets_what_it_had_by_itself() -> None:
    world = World()
    world.commit(5).get()
    beside = Beside(alone=True)
    world.coordinator.keep_elsewhere(beside)
    world.pass_time(WEEK + 1_200)
    assert world.committed() == {}
    assert (beside.told, beside.cleared) == ([], [])


def test_a_deleted_topic_s_offsets_are_told_as_gone() -> None:
    world, beside = kept_beside()
    world.commit(5).get()
    world.coordinator.topic_deleted("orders")
    assert beside.told == [("g", WHERE, 5), ("g", WHERE, None)]


def test_positions_from_there_are_taken_for_groups_with_members_only() -> None:
    world, beside = kept_beside()
    [member] = world.stable()
    world.commit(5, member, 1).get()
    world.commit(5, group="idle").get()
    for group in ("g", "idle"):
        world.coordinator.adopt_offsets(group, {WHERE: OffsetCommitValue(offset=8)})
    assert (world.committed()[WHERE][0], world.committed("idle")[WHERE][0]) == (8, 5)
    assert ("g", WHERE, 8) not in beside.told, "it came from there"
    world.start()
    assert world.committed()[WHERE][0] == 8, "it is in the log"


def test_a_commit_that_is_on_its_way_is_not_overtaken() -> None:
    world, _ = kept_beside()
    [member] = world.stable()
    world.store.hold()
    world.commit(5, member, 1)
    world.coordinator.adopt_offsets("g", {WHERE: OffsetCommitValue(offset=8)})
    world.store.release_all()
    assert world.committed()[WHERE][0] == 5


def test_each_partition_that_is_loaded_is_told() -> None:
    world, beside = kept_beside()
    assert sorted(beside.partitions) == list(range(50))
    world.coordinator.unload(3)
    world.coordinator.finish_load(world.coordinator.begin_load(3), world.store.image(3))
    assert beside.partitions[50:] == [3]
    assert beside.left == [3]


@pytest.mark.parametrize(
    ("log", "there", "in_step", "offset"),
    [
        (None, None, True, None),
        (5, None, True, 5),
        (None, (8, 1), True, 8),
        (5, (8, 1), True, 8),
        (5, (4, 200), True, 5),
        (5, (8, 200), False, 8),  # written there later: by somebody else
        (5, (8, 50), False, 5),  # from before a rewind that is not written there yet
        (5, (4, 200), False, 5),
    ],
)
def test_the_position_that_counts(
    log: int | None, there: tuple[int, int] | None, in_step: bool, offset: int | None
) -> None:
    value = None if log is None else OffsetCommitValue(offset=log, commit_timestamp=100, metadata="m", leader_epoch=3)
    found = newest(value, None if there is None else Seen(*there), in_step=in_step)
    assert (None if found is None else found.offset) == offset
    if found is not None and found is not value:
        assert (found.metadata, found.leader_epoch) == ("", -1)
