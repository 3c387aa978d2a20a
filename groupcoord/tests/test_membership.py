"""Joining, syncing, staying and leaving, from the client's view."""

import pytest

from barnabas.groupcoord.config import GroupConfig
from barnabas.groupcoord.tests.harness import RANGE, World, subscription
from barnabas.wire.codegen import message_codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest


def test_one_member_joins_syncs_and_stays() -> None:
    world = World()
    told = world.join().get()
    assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert told.member_id == "c-1"

    joined = world.join(told.member_id).get()
    assert (joined.error_code, joined.generation_id, joined.leader) == (ErrorCode.NONE, 1, "c-1")
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert [member.member_id for member in joined.members] == ["c-1"]

    synced = world.sync("c-1", 1, {"c-1": b"all"}).get()
    assert (synced.error_code, synced.assignment, synced.protocol_name) == (ErrorCode.NONE, b"all", "range")
    assert world.heartbeat("c-1", 1) == ErrorCode.NONE
    assert world.describe().group_state == "Stable"


def test_a_second_member_starts_a_rebalance_that_both_join() -> None:
    world = World()
    [first] = world.stable()
    second = world.new_member()
    assert second.is_open
    assert world.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS

    again = world.join(first).get()
    joined = second.get()
    assert again.generation_id == joined.generation_id == 2
    assert again.leader == joined.leader == first
    assert len(again.members) == 2
    assert not joined.members

    waiting = world.sync(joined.member_id, 2)
    assert waiting.is_open
    assert world.sync(first, 2, {first: b"0", joined.member_id: b"1"}).get().assignment == b"0"
    assert waiting.get().assignment == b"1"


def test_versions_before_4_need_no_known_member_id() -> None:
    joined = World().join(version=3).get()
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)


def test_version_0_uses_the_session_timeout_for_the_rebalance() -> None:
    world = World()
    world.join(version=0, rebalance_ms=-1, session_ms=7_000).get()
    world.join(version=0, rebalance_ms=-1, session_ms=7_000)
    world.pass_time(6.9)
    assert world.describe().group_state == "PreparingRebalance"
    world.pass_time(0.2)
    assert world.describe().group_state == "CompletingRebalance"


def test_the_initial_delay_gathers_a_fleet_in_one_generation() -> None:
    world = World(GroupConfig(group_initial_rebalance_delay_ms=3000))
    replies = [world.new_member()]
    for _ in range(3):
        world.pass_time(2)  # each newcomer extends the delay
        replies.append(world.new_member())
    assert all(reply.is_open for reply in replies)
    world.pass_time(6)
    assert {reply.get().generation_id for reply in replies} == {1}


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    world = World(GroupConfig(group_initial_rebalance_delay_ms=3000))
    first = world.new_member(rebalance_ms=8000)
    for _ in range(7):
        world.pass_time(1)
        world.new_member(rebalance_ms=8000)
    assert first.is_open
    world.pass_time(1.01)
    assert first.get().generation_id == 1


def test_most_votes_choose_among_common_protocols() -> None:
    world = World()

    def offer(*names: str) -> list[tuple[str, bytes]]:
        return [(name, name.encode()) for name in names]

    leader = world.new_member(protocols=offer("range", "sticky", "own")).get().member_id
    others = [world.new_member(protocols=offer("sticky", "range")) for _ in range(2)]
    joined = world.join(leader, protocols=offer("range", "sticky", "own")).get()
    assert joined.protocol_name == "sticky"
    assert {member.metadata for member in joined.members} == {b"sticky"}
    assert [reply.get().protocol_name for reply in others] == ["sticky", "sticky"]
    assert world.join(protocols=offer("own")).get().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocol_type="connect").get().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_who_does_not_join_again_in_time_is_dropped() -> None:
    world = World()
    first, second = world.stable(2)
    third = world.new_member()
    again = world.join(second)
    for _ in range(12):  # it is alive, but never joins
        world.pass_time(5)
        world.heartbeat(first, 2)
    assert third.get().leader == again.get().leader == second
    assert world.heartbeat(first, 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(again.get().members) == 2


def test_who_does_not_sync_in_time_is_dropped() -> None:
    world = World()
    first = world.new_member().get().member_id
    other = world.new_member()
    world.join(first).get()
    waiting = world.sync(other.get().member_id, 2)
    for _ in range(12):
        world.pass_time(5)
        world.heartbeat(first, 2)
    assert waiting.get().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.heartbeat(first, 2) == ErrorCode.UNKNOWN_MEMBER_ID
    rejoined = world.join(other.get().member_id).get()
    assert (rejoined.leader, rejoined.generation_id) == (other.get().member_id, 3)


def test_a_session_lasts_as_long_as_it_is_renewed() -> None:
    world = World()
    [member] = world.stable()
    for _ in range(10):
        world.pass_time(9)
        assert world.heartbeat(member, 1) == ErrorCode.NONE
    world.pass_time(9)
    assert world.commit_error(7, member, 1) == ErrorCode.NONE  # renews the session, too
    world.pass_time(9)
    assert world.heartbeat(member, 1) == ErrorCode.NONE
    world.pass_time(10)
    assert world.heartbeat(member, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.describe().group_state == "Empty"


def test_a_member_that_waits_does_not_expire_but_a_new_one_is_given_up() -> None:
    world = World(GroupConfig(new_member_join_timeout_ms=20_000))
    [first] = world.stable()
    second = world.new_member()
    for _ in range(3):
        world.pass_time(7)
        world.heartbeat(first, 1)
    assert second.get().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert second.get().member_id == ""
    assert world.join(first).get().generation_id == 2


def test_a_pending_member_holds_up_the_barrier_until_its_session_ends() -> None:
    world = World()
    [first] = world.stable()
    world.join()  # receives its id, never comes back
    other = world.join(version=3)
    again = world.join(first)
    assert again.is_open
    world.pass_time(10)
    assert len(again.get().members) == 2
    assert other.get().generation_id == 2


def test_joining_again_while_the_join_waits_answers_the_first() -> None:
    world = World()
    [first] = world.stable()
    second = world.new_member()
    member = next(each.member_id for each in world.describe().members if each.member_id != first)
    retry = world.join(member)
    assert second.get().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    world.join(first)
    assert retry.get().generation_id == 2


def test_syncing_again_while_the_sync_waits_answers_the_first() -> None:
    world = World()
    [first] = world.stable()
    second = world.new_member()
    world.join(first)
    member = second.get().member_id
    one, two = world.sync(member, 2), world.sync(member, 2)
    assert one.get().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    world.sync(first, 2, {member: b"x"})
    assert two.get().assignment == b"x"


def test_a_join_that_changes_nothing_returns_the_current_generation() -> None:
    world = World()
    leader, follower = world.stable(2)
    assert world.join(follower).get().generation_id == 2
    assert world.describe().group_state == "Stable"
    assert world.sync(follower, 2).get().assignment == f"a-{follower}".encode()
    assert world.join(follower, protocols=[("range", subscription("payments"))]).is_open
    assert world.describe().group_state == "PreparingRebalance"
    assert world.join(leader).get().generation_id == 3


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    world = World()
    leader, follower = world.stable(2)
    assert world.join(leader).is_open
    assert world.heartbeat(follower, 2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_assignment_is_answered_when_it_is_durable() -> None:
    world = World()
    world.store.hold()
    member = world.new_member().get().member_id
    waiting = world.sync(member, 1, {member: b"x"})
    assert waiting.is_open
    assert world.describe().group_state == "CompletingRebalance"
    assert world.commit_error(1, member, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    world.store.release_all()
    assert waiting.get().assignment == b"x"
    assert world.describe().group_state == "Stable"


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_cannot_be_stored(failure: ErrorCode, told: ErrorCode) -> None:
    world = World()
    member = world.new_member().get().member_id
    world.store.fails_with = failure
    assert world.sync(member, 1, {member: b"x"}).get().error_code == told
    assert world.describe().group_state == "PreparingRebalance"
    assert world.commit_error(1, member, 1) == told


def test_a_member_that_joins_while_the_assignment_is_written() -> None:
    world = World()
    world.store.hold()
    first = world.new_member().get().member_id
    waiting = world.sync(first, 1, {first: b"x"})
    second = world.new_member()
    assert waiting.get().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    world.store.release_all()
    assert world.describe().group_state == "PreparingRebalance"
    assert world.join(first).get().generation_id == second.get().generation_id == 2


def test_a_static_member_that_waited_long_for_its_sync_still_expires() -> None:
    world = World()
    leader = world.join(instance="one").get().member_id
    second = world.join(instance="two")
    world.join(leader, instance="one")
    waiting = world.sync(second.get().member_id, 2, instance="two")
    for _ in range(4):  # the leader is alive but slow to assign; the other one's session cannot expire meanwhile
        world.pass_time(5)
        world.heartbeat(leader, 2, instance="one")
    world.join(version=3)
    assert waiting.get().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    world.pass_time(11)
    assert [member.group_instance_id for member in world.describe().members] == [None]


def test_many_leave_in_one_rebalance() -> None:
    world = World()
    leader, one, two = world.stable(3)
    left = world.leave((one, None), ("nobody", None), (two, None))
    assert [member.error_code for member in left.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert world.join(leader).get().generation_id == 4
    assert len(world.describe().members) == 1


def test_leaving_before_version_3_answers_at_the_top() -> None:
    world = World()
    [member] = world.stable()
    request = LeaveGroupRequest(group_id="g", member_id=member)
    assert world.coordinator.leave(request, 2).error_code == ErrorCode.NONE
    assert world.coordinator.leave(request, 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.describe().group_state == "Empty"


def test_leaving_while_a_join_waits_answers_the_join() -> None:
    world = World()
    [first] = world.stable()
    world.new_member()
    again = world.join(first, rebalance_ms=50_000)
    assert again.get().generation_id == 2
    third = world.new_member()
    member = world.describe().members[-1].member_id
    world.leave((member, None))
    assert third.get().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_takes_no_more_than_group_max_size() -> None:
    world = World(GroupConfig(group_max_size=2))
    first, _second = world.stable(2)
    refused = world.join().get()
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert world.join(first).is_open


# --- static members ---------------------------------------------------------------------------------------------------


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    world = World()
    leader, follower = world.stable(instances=["one", "two"])
    world.store.hold()
    back = world.join(instance="two")
    assert back.is_open  # until its new id is durable
    world.store.release_all()
    joined = back.get()
    assert (joined.generation_id, joined.skip_assignment, joined.leader) == (2, False, leader)
    assert joined.member_id not in (follower, "")
    synced = world.sync(joined.member_id, 2, instance="two").get()
    assert synced.assignment == f"a-{follower}".encode()
    assert world.describe().group_state == "Stable"

    assert world.heartbeat(follower, 2, instance="two") == ErrorCode.FENCED_INSTANCE_ID
    assert world.sync(follower, 2, instance="two").get().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert world.join(follower, instance="two").get().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert world.commit_error(1, follower, 2, instance="two") == ErrorCode.FENCED_INSTANCE_ID
    assert world.leave((follower, "two")).members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(joined.member_id, 2, instance="two") == ErrorCode.NONE

    world.start()
    assert world.heartbeat(joined.member_id, 2, instance="two") == ErrorCode.NONE


@pytest.mark.parametrize(("version", "skips"), [(8, False), (9, True)])
def test_a_static_leader_comes_back_and_need_not_assign(version: int, skips: bool) -> None:
    world = World()
    leader, _ = world.stable(instances=["one", "two"])
    joined = world.join(instance="one", version=version).get()
    assert joined.skip_assignment is skips
    assert len(joined.members) == (2 if skips else 0)
    assert joined.leader == (joined.member_id if skips else leader)
    message_codec(JoinGroupResponse, version).build(joined)
    assert world.describe().group_state == "Stable"


def test_a_static_member_with_other_protocols_rebalances_if_the_choice_changes() -> None:
    world = World()
    world.join(instance="one", protocols=[*RANGE, ("sticky", b"")]).get()
    world.sync("one-1", 1, {"one-1": b"x"}, instance="one").get()
    joined = world.join(instance="one", protocols=[("sticky", b""), *RANGE]).get()
    assert (joined.generation_id, joined.protocol_name) == (2, "sticky")


def test_a_static_member_keeps_its_old_id_if_the_new_one_cannot_be_stored() -> None:
    world = World()
    _, follower = world.stable(instances=["one", "two"])
    world.store.fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.join(instance="two").get().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat(follower, 2, instance="two") == ErrorCode.NONE


def test_a_static_member_that_comes_back_between_join_and_sync_rebalances() -> None:
    world = World()
    leader = world.join(instance="one").get().member_id
    second = world.join(instance="two")
    world.join(leader, instance="one")
    waiting = world.sync(second.get().member_id, 2, instance="two")
    back = world.join(instance="two")
    assert waiting.get().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(leader, 2, instance="one") == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join(leader, instance="one").get().generation_id == back.get().generation_id == 3


def test_a_static_member_keeps_its_place_until_its_session_ends() -> None:
    world = World()
    leader, away = world.stable(instances=["one", "two"])
    again = world.join(leader, instance="one", rebalance_ms=5_000)
    world.pass_time(60)
    assert [member.group_instance_id for member in again.get().members] == ["one"]
    assert world.heartbeat(away, 2, instance="two") == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_removes_a_static_member_by_its_name() -> None:
    world = World()
    world.stable(instances=["one", "two"])
    left = world.leave(("", "two"), ("", "three"))
    assert [member.error_code for member in left.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert [member.group_instance_id for member in world.describe().members] == ["one"]


# --- ownership and restart --------------------------------------------------------------------------------------------


def test_a_restart_keeps_generation_members_and_assignments() -> None:
    world = World()
    leader, follower = world.stable(2)
    before = world.describe()
    world.start()
    assert world.describe() == before
    assert world.heartbeat(leader, 2) == ErrorCode.NONE
    assert world.sync(follower, 2).get().assignment == f"a-{follower}".encode()
    world.pass_time(11)  # a full session for each, counted from the restart
    assert world.describe().group_state == "Empty"
    world.start()
    assert (world.describe().group_state, world.describe().protocol_type) == ("Empty", "consumer")


def test_while_loading_and_when_not_owned() -> None:
    world = World()
    [member] = world.stable()
    waiting = world.new_member()
    partition = world.coordinator.partition_of("g")
    world.coordinator.unload(partition)
    assert waiting.get().error_code == ErrorCode.NOT_COORDINATOR
    assert world.heartbeat(member, 1) == ErrorCode.NOT_COORDINATOR
    assert world.join(member).get().error_code == ErrorCode.NOT_COORDINATOR
    assert world.commit_error(1) == ErrorCode.NOT_COORDINATOR
    assert world.describe().error_code == ErrorCode.NOT_COORDINATOR
    loading = world.coordinator.begin_load(partition)
    assert world.heartbeat(member, 1) == ErrorCode.NONE
    assert world.join(member).get().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.commit_error(1) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.coordinator.finish_load(loading, world.store.image(partition))
    assert world.heartbeat(member, 1) == ErrorCode.NONE
    world.coordinator.finish_load(loading, world.store.image(partition))  # late and repeated: no effect
    assert world.describe().group_state == "Stable"


def test_a_write_that_ends_after_the_partition_has_gone() -> None:
    world = World()
    world.store.hold()
    member = world.new_member().get().member_id
    waiting = world.sync(member, 1, {member: b"x"})
    commit = world.commit(5, group="other")
    for partition in range(50):
        world.coordinator.unload(partition)
    assert waiting.get().error_code == ErrorCode.NOT_COORDINATOR
    world.store.release_all()
    assert commit.get().topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR


# --- error codes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger", "group": "g"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger", "instance": "one", "group": "g"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_joins_that_are_refused(changes: dict[str, object], error: ErrorCode) -> None:
    world = World()
    world.stable()
    answer = world.join(**{"group": "new", **changes}).get()  # type: ignore[arg-type]
    assert answer.error_code == error
    assert answer.member_id == changes.get("member_id", "")
    for version in range(10):
        message_codec(JoinGroupResponse, version).build(answer)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group": "new"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"instance": "one"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": None, "version": 4}, ErrorCode.NONE),
    ],
)
def test_syncs_that_are_refused(changes: dict[str, object], error: ErrorCode) -> None:
    world = World()
    [member] = world.stable()
    given = {"member_id": member, "generation": 1, **changes}
    assert world.sync(**given).get().error_code == error  # type: ignore[arg-type]
    if not {"protocol", "protocol_type", "version"} & changes.keys():
        assert world.heartbeat(**given) == error  # type: ignore[arg-type]


def test_a_group_is_described() -> None:
    world = World()
    [member] = world.stable()
    described = world.describe()
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    [one] = described.members
    assert (one.member_id, one.client_id, one.client_host) == (member, "c", "/10.0.0.1")
    assert (one.member_metadata, one.member_assignment) == (subscription("orders"), f"a-{member}".encode())
    unknown = world.describe("nobody")
    assert (unknown.group_state, unknown.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert unknown.error_message == "Group nobody not found."
    unknown = world.describe("nobody", version=5)
    assert (unknown.group_state, unknown.error_code, unknown.error_message) == ("Dead", 0, None)
