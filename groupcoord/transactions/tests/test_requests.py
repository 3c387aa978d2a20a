"""The answers to each request of a transactional producer, by version and state."""

from __future__ import annotations

import pytest

from barnabas.groupcoord.transactions.config import TransactionConfig
from barnabas.groupcoord.transactions.state import MAX_EPOCH
from barnabas.groupcoord.transactions.tests.harness import CONFIG, NEVER_USED, PARTITIONS, World
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

ORDERS, MORE = ("orders", 0), ("orders", 1)


def refusal(world: World, producer: tuple[int, int], where: tuple[str, int] = ORDERS) -> ErrorCode:
    """The error with which a batch is refused."""
    with pytest.raises(KafkaError) as caught:
        world.write(producer, where)
    return caught.value.code


# --- InitProducerId ---------------------------------------------------------------------------------------------------


def test_a_new_producer_gets_a_new_id_and_then_higher_epochs() -> None:
    world = World()
    assert world.producer() == (NEVER_USED, 0)
    assert world.producer() == (NEVER_USED, 1)
    assert world.producer("other") == (NEVER_USED + 1, 0)
    world.start()
    assert world.producer() == (NEVER_USED, 2)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_are_checked(timeout_ms: int) -> None:
    answer = World().init(timeout_ms=timeout_ms).get()
    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1)


@pytest.mark.parametrize(("name", "producer"), [("", (-1, -1)), ("t", (5, -1)), ("t", (-1, 5))])
def test_half_a_producer_is_invalid(name: str, producer: tuple[int, int]) -> None:
    assert World().init(name, producer=producer).get().error_code == ErrorCode.INVALID_REQUEST


def test_a_producer_that_says_who_it_is_is_answered_alike_when_it_repeats_itself() -> None:
    world = World()
    first = world.producer()
    second = world.producer(producer=first)  # type: ignore[arg-type]
    assert second == (first[0], 1)
    assert world.producer(producer=first) == second, "a repetition"  # type: ignore[arg-type]
    assert world.producer(producer=second) == (first[0], 2)  # type: ignore[arg-type]
    for version, code in ((3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)):
        assert world.init(producer=first, version=version).get().error_code == code
    assert world.init(producer=(7, 0)).get().error_code == ErrorCode.PRODUCER_FENCED


def test_a_new_producer_aborts_what_is_open_and_waits_for_its_end() -> None:
    world = World()
    old = world.producer()
    world.add(old)
    world.write(old)
    world.markers.is_held = True
    assert world.init().get().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.status() == "PrepareAbort"
    assert world.init().get().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.markers.release_all()
    assert world.status() == "CompleteAbort"
    assert world.markers_in() == [(1, False)]
    assert world.producer() == (old[0], 2)
    for version, code in ((1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)):
        assert world.end_error(old, version=version) == code
        assert world.add_error(old, version=version) == code
        assert world.add_offsets(old, version=version) == code
    assert refusal(world, old) == ErrorCode.PRODUCER_FENCED


def test_a_zombie_that_says_who_it_was_does_not_abort_its_successor() -> None:
    world = World()
    old = world.producer()
    new = world.producer()
    world.add(new)
    assert world.init(producer=old).get().error_code == ErrorCode.PRODUCER_FENCED
    assert world.status() == "Ongoing"


def test_a_fencing_that_could_not_be_written_raises_the_epoch_once() -> None:
    world = World()
    old = world.producer()
    world.add(old)
    world.store.fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        assert world.init().get().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.store.fails_with = ErrorCode.NONE
    assert world.init().get().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.state().producer_epoch == old[1] + 1


def test_used_up_epochs_give_a_new_id() -> None:
    world = World()
    producer = world.producer()
    while producer[1] < MAX_EPOCH - 1:
        producer = world.producer()
    asks_again = world.producer(producer=producer)  # type: ignore[arg-type]
    assert asks_again == (NEVER_USED + 1, 0)
    assert world.producer(producer=producer) == asks_again, "a repetition"  # type: ignore[arg-type]
    assert world.producer() == (NEVER_USED + 1, 1)


def test_without_an_id_to_give_nothing_is_left_behind() -> None:
    world = World()
    world.ids_fail = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    assert world.init().get().error_code == ErrorCode.NOT_COORDINATOR
    world.ids_fail = None
    world.store.fails_with = ErrorCode.REQUEST_TIMED_OUT
    assert world.init().get().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.coordinator.shards.used_bytes == 0
    world.store.fails_with = ErrorCode.NONE
    assert world.producer()[1] == 0


# --- what belongs to a transaction ------------------------------------------------------------------------------------


def test_a_partition_is_written_once_it_was_added() -> None:
    world = World()
    producer = world.producer()
    assert refusal(world, producer) == ErrorCode.TRANSACTION_ABORTABLE
    assert world.add_error(producer) == ErrorCode.NONE
    world.write(producer)
    assert refusal(world, producer, MORE) == ErrorCode.TRANSACTION_ABORTABLE
    assert world.add_error(producer, MORE) == ErrorCode.NONE
    world.write(producer, MORE)
    assert world.state().partitions == {ORDERS, MORE}


def test_what_was_added_already_is_not_written_again() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    before = sum(map(len, world.store.log.values()))
    assert world.add_error(producer) == ErrorCode.NONE
    assert sum(map(len, world.store.log.values())) == before


def test_one_partition_that_is_not_there_keeps_all_out() -> None:
    world = World()
    producer = world.producer()
    answer = world.add(producer, ORDERS, ("orders", 3), ("absent", 0), ("__consumer_offsets", 0)).get()
    codes = [topic.results_by_partition[0].partition_error_code for topic in answer.results_by_topic_v3_and_below]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, unknown, unknown, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert world.status() == "Empty"


def test_producers_that_are_not_the_one_are_refused() -> None:
    world = World()
    pid, epoch = world.producer()
    assert world.add_error((pid, epoch), name="absent") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.add_error((pid, epoch), name="") == ErrorCode.INVALID_REQUEST
    assert world.add_error((pid + 1, epoch)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.add_error((pid, epoch + 1)) == ErrorCode.PRODUCER_FENCED
    assert world.end_error((pid + 1, epoch)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.end_error((pid, epoch + 1)) == ErrorCode.PRODUCER_FENCED
    assert world.add_offsets((pid, epoch + 1)) == ErrorCode.PRODUCER_FENCED


def test_brokers_ask_for_many_and_only_look() -> None:
    world = World()
    producer = world.producer()
    assert world.add_error(producer, version=5, verify=True) == ErrorCode.TRANSACTION_ABORTABLE
    assert world.status() == "Empty"
    assert world.add_error(producer, version=5) == ErrorCode.NONE
    assert world.add_error(producer, version=5, verify=True) == ErrorCode.NONE
    assert world.state().client_version == 2


def test_offsets_are_a_partition_like_others() -> None:
    world = World()
    producer = world.producer()
    assert world.add_offsets(producer, "gg") == ErrorCode.NONE
    assert world.state().partitions == {("__consumer_offsets", 2)}


def test_an_addition_waits_a_little_for_the_transaction_before() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.markers.is_held = True
    assert world.end_error(producer, version=4) == ErrorCode.NONE
    in_time = world.add(producer, MORE)
    assert in_time.is_open
    world.pass_time(0.05)
    world.markers.release_all()
    assert in_time.get().results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    assert world.state().partitions == {MORE}
    assert world.end_error(producer, version=4) == ErrorCode.NONE
    too_late = world.add(producer)
    world.pass_time(0.11)
    told = too_late.get().results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    assert told == ErrorCode.CONCURRENT_TRANSACTIONS
    world.markers.release_all()
    assert world.status() == "CompleteCommit"


def test_few_requests_wait_for_one_id() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.markers.is_held = True
    world.end(producer, version=4)
    answers = [world.add(producer) for _ in range(100)]
    assert sum(answer.is_open for answer in answers) == 16


# --- the end ----------------------------------------------------------------------------------------------------------


def test_version_1_keeps_the_epoch() -> None:
    world = World()
    producer = world.producer()
    for committed in (True, False):
        world.add(producer)
        answer = world.end(producer, committed=committed, version=4).get()
        assert (answer.error_code, answer.producer_id) == (ErrorCode.NONE, -1)
        assert world.end_error(producer, committed=committed, version=4) == ErrorCode.NONE, "a repetition"
        assert world.end_error(producer, committed=not committed, version=4) == ErrorCode.INVALID_TXN_STATE
    assert world.state().producer_epoch == producer[1]


def test_version_1_has_nothing_to_end_before_it_begins() -> None:
    world = World()
    producer = world.producer()
    for committed in (True, False):
        assert world.end_error(producer, committed=committed, version=4) == ErrorCode.INVALID_TXN_STATE


def test_version_2_raises_the_epoch() -> None:
    world = World()
    producer = world.producer()
    for committed in (True, False):
        world.add_implicitly(producer)
        world.write(producer)
        answer = world.end(producer, committed=committed).get()
        after = (answer.producer_id, answer.producer_epoch)
        assert after == (producer[0], producer[1] + 1)
        again = world.end(producer, committed=committed).get()
        assert (again.error_code, again.producer_id, again.producer_epoch) == (ErrorCode.NONE, *after)
        assert world.end_error(producer, committed=not committed) == ErrorCode.INVALID_TXN_STATE
        assert refusal(world, producer) == ErrorCode.PRODUCER_FENCED
        producer = after
    assert world.markers_in() == [(1, True), (2, False)]


def test_version_2_aborts_what_has_not_begun_and_does_not_commit_it() -> None:
    world = World()
    producer = world.producer()
    assert world.end_error(producer) == ErrorCode.INVALID_TXN_STATE
    for _ in range(3):
        answer = world.end(producer, committed=False).get()
        assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, producer[1] + 1)
        producer = answer.producer_id, answer.producer_epoch
        assert world.status() == "CompleteAbort"
        assert world.end_error(producer) == ErrorCode.INVALID_TXN_STATE


def test_a_late_end_does_not_touch_the_next_transaction() -> None:
    """The flaw of version 1 that KIP-890 fixes."""
    world = World()
    producer = world.producer()
    world.add_implicitly(producer)
    after = world.end(producer).get().producer_epoch
    world.add_implicitly((producer[0], after))
    for committed in (True, False):
        assert world.end_error(producer, committed=committed) == ErrorCode.PRODUCER_FENCED
    assert world.status() == "Ongoing"


def test_version_2_changes_the_producer_id_when_epochs_are_used_up() -> None:
    world = World()
    producer = world.producer()
    while producer[1] < MAX_EPOCH - 1:
        producer = world.producer()
    world.add_implicitly(producer)
    world.write(producer)
    world.markers.is_held = True
    answer = world.end(producer).get()
    after = (answer.producer_id, answer.producer_epoch)
    assert after == (NEVER_USED + 1, 0)
    early = world.add_implicitly(after)
    assert early.is_open, "under the new id, before the transaction under the old one is complete"
    world.markers.release_all()
    assert early.get() == ErrorCode.NONE
    assert world.markers_in() == [(MAX_EPOCH, True)]
    world.markers.is_held = False
    world.write(after)
    assert world.end_error(after) == ErrorCode.NONE


def test_a_repetition_is_known_over_the_change_of_the_producer_id() -> None:
    world = World()
    producer = world.producer()
    while producer[1] < MAX_EPOCH - 1:
        producer = world.producer()
    world.add_implicitly(producer)
    told = world.end(producer).get()
    world.start()
    again = world.end(producer).get()
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, told.producer_id, told.producer_epoch)
    assert world.end_error(producer, committed=False) == ErrorCode.INVALID_TXN_STATE


def test_nobody_goes_on_with_the_last_epoch() -> None:
    """It is reserved for fencing: a producer that was fenced with it could get no higher one."""
    world = World()
    producer = world.producer()
    while producer[1] < MAX_EPOCH - 1:
        producer = world.producer()
    world.add_implicitly(producer)
    world.pass_time(61)
    assert (world.status(), world.state().producer_epoch) == ("CompleteAbort", MAX_EPOCH)
    assert world.end_error(producer, committed=False) == ErrorCode.PRODUCER_FENCED
    assert world.add_error((producer[0], MAX_EPOCH)) == ErrorCode.PRODUCER_FENCED
    assert world.producer() == (NEVER_USED + 1, 0)


def test_what_is_decided_is_not_changed() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.markers.is_held = True
    assert world.end_error(producer, version=4) == ErrorCode.NONE
    assert world.status() == "PrepareCommit"
    assert world.end_error(producer, version=4) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.end_error(producer, committed=False, version=4) == ErrorCode.INVALID_TXN_STATE
    assert world.end_error(producer, version=5) == ErrorCode.CONCURRENT_TRANSACTIONS


def test_the_end_is_answered_when_it_is_durable_and_seen_not_before() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.store.hold()
    answer = world.end(producer)
    assert answer.is_open
    assert world.status() == "Ongoing"
    assert world.end_error(producer) == ErrorCode.CONCURRENT_TRANSACTIONS
    world.store.release_all(ErrorCode.REQUEST_TIMED_OUT)
    assert answer.get().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.status() == "Ongoing"


# --- markers ----------------------------------------------------------------------------------------------------------


def test_markers_are_written_again_after_a_restart() -> None:
    world = World()
    producer = world.producer()
    world.add_implicitly(producer, ORDERS, MORE)
    world.write(producer)
    world.write(producer, MORE)
    world.markers.is_held = True
    world.end(producer)
    world.markers.release()
    world.markers.waiting.clear()
    world.markers.is_held = False
    world.start()
    assert world.status() == "CompleteCommit"
    assert world.markers_in(ORDERS) == world.markers_in(MORE) == [(1, True)]


def test_a_partition_that_fails_is_tried_again_and_one_that_is_gone_is_dropped() -> None:
    world = World()
    producer = world.producer()
    world.add(producer, ORDERS, ("payments", 0))
    world.write(producer)
    del world.partitions["payments", 0]
    world.markers.fails_with = ErrorCode.KAFKA_STORAGE_ERROR
    assert world.end_error(producer) == ErrorCode.NONE
    world.pass_time(60)
    assert world.status() == "PrepareCommit"
    world.markers.fails_with = ErrorCode.NONE
    world.pass_time(31)
    assert world.status() == "CompleteCommit"
    assert world.markers_in() == [(1, True)]


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NETWORK_EXCEPTION])
def test_a_leader_that_was_away_for_long_gets_its_marker_within_a_second(code: ErrorCode) -> None:
    """The producer's next transaction waits for it."""
    world = World()
    producer = world.producer()
    world.add(producer)
    world.write(producer)
    world.markers.fails_with = code
    assert world.end_error(producer) == ErrorCode.NONE
    world.pass_time(300)
    world.markers.fails_with = ErrorCode.NONE
    world.pass_time(1)
    assert world.status() == "CompleteCommit"


def test_an_end_that_cannot_be_noted_is_tried_again() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.markers.is_held = True
    world.end(producer)
    world.store.fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    world.markers.release_all()
    assert world.status() == "PrepareCommit"
    world.store.fails_with = ErrorCode.NONE
    world.pass_time(1)
    assert world.status() == "CompleteCommit"


def test_many_partitions_do_not_hold_up_the_others() -> None:
    world = World()
    producer = world.producer()
    places = [("__consumer_offsets", index) for index in range(50)] + [("orders", index) for index in range(3)]
    assert world.add_implicitly(producer, *places).get() == ErrorCode.NONE
    world.markers.is_held = True
    world.end(producer)
    assert len(world.markers.waiting) == 50
    world.pass_time(0)
    assert len(world.markers.waiting) == len(places)
    world.markers.release_all()
    assert world.status() == "CompleteCommit"


# --- time, room, ownership --------------------------------------------------------------------------------------------


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    world = World()
    producer = world.producer(timeout_ms=5_000)
    world.add(producer)
    world.write(producer)
    world.pass_time(3)
    world.add(producer, MORE)  # does not make it longer
    world.start()  # nor does this
    world.pass_time(1.9)
    assert world.status() == "Ongoing"
    world.store.fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    world.pass_time(0.2)
    assert world.status() == "Ongoing"
    world.store.fails_with = ErrorCode.NONE
    world.pass_time(1)
    assert world.status() == "CompleteAbort"
    assert world.markers_in() == [(1, False)]
    assert world.end_error(producer, version=4) == ErrorCode.PRODUCER_FENCED
    assert refusal(world, producer) == ErrorCode.PRODUCER_FENCED


def test_ids_that_nobody_uses_are_forgotten() -> None:
    config = TransactionConfig(
        transaction_state_log_num_partitions=PARTITIONS,
        transactional_id_expiration_ms=3_600_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=600_000,
    )
    world = World(config)
    old = [world.producer(f"old-{n}") for n in range(250)]
    open_one = world.producer("open", timeout_ms=900_000)
    world.pass_time(3_000)
    used = world.producer("used")
    world.add(open_one, name="open")
    world.pass_time(700)
    assert world.end_error(old[0], name="old-0") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.producer("used")[1] == used[1] + 1
    assert world.status("open") == "Ongoing"
    world.start()
    assert sum(len(shard.transactions) for shard in world.coordinator.shards.by_partition.values()) == 2
    assert world.producer("old-0")[1] == 0


def test_strangers_take_no_more_memory_than_there_is() -> None:
    world = World(TransactionConfig(transaction_state_log_num_partitions=PARTITIONS, most_bytes=1 << 20))
    mine = world.producer()
    codes = [world.init(f"{n}-" + "x" * 10_000).get().error_code for n in range(200)]
    assert codes.count(ErrorCode.NONE) < 100
    assert set(codes) == {ErrorCode.NONE, ErrorCode.POLICY_VIOLATION}
    assert world.coordinator.shards.used_bytes <= 1 << 20
    assert world.producer() == (mine[0], 1), "those who are there go on"
    for partition in range(PARTITIONS):
        world.coordinator.unload(partition)
    assert world.coordinator.shards.used_bytes == 0


def test_a_hoarder_of_transactional_ids_leaves_room_for_those_of_others() -> None:
    world = World(TransactionConfig(transaction_state_log_num_partitions=PARTITIONS, most_bytes=1 << 20))
    codes = [world.init(f"{n}-" + "x" * 10_000).get().error_code for n in range(200)]
    assert ErrorCode.POLICY_VIOLATION in codes
    assert world.init("honest", client="10.0.0.2").get().error_code == ErrorCode.NONE
    world.start()  # the coordinator no longer knows whose they were
    assert world.init("later", client="10.0.0.2").get().error_code == ErrorCode.NONE
    shards = world.coordinator.shards
    assert world.init("0-" + "x" * 10_000, client="10.0.0.3").get().error_code == ErrorCode.NONE
    assert shards._shares.of("10.0.0.3") > 10_000, "who begins with an id has it"


def test_what_is_not_here_or_not_loaded_says_so() -> None:
    world = World()
    producer = world.producer()
    world.add(producer)
    world.markers.is_held = True
    world.end(producer, version=4)
    waits = world.add(producer)
    partition = world.coordinator.partition_of("t")
    world.coordinator.unload(partition)
    told = waits.get().results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    assert told == ErrorCode.NOT_COORDINATOR
    assert world.init().get().error_code == ErrorCode.NOT_COORDINATOR
    world.coordinator.begin_load(partition)
    assert world.init().get().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.end_error(producer) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert listed(world).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# --- operators --------------------------------------------------------------------------------------------------------


def listed(world: World, **filters: object) -> ListTransactionsResponse:
    *_, answer = world.coordinator.list(ListTransactionsRequest(**filters))  # type: ignore[arg-type]
    return answer


def names(answer: ListTransactionsResponse) -> set[str]:
    assert not answer.error_code
    return {each.transactional_id for each in answer.transaction_states}


def test_transactions_are_listed_by_what_is_asked_for() -> None:
    world = World()
    one, _ = world.producer("one"), world.producer("two")
    world.add(one, name="one")
    world.pass_time(10)
    assert names(listed(world)) == {"one", "two"}
    assert names(listed(world, state_filters=["Ongoing"])) == {"one"}
    unknown = listed(world, state_filters=["Empty", "Elsewhere"])
    assert (names(unknown), unknown.unknown_state_filters) == ({"two"}, ["Elsewhere"])
    assert names(listed(world, state_filters=["Elsewhere"])) == set()
    assert names(listed(world, producer_id_filters=[one[0]])) == {"one"}
    assert "one" in names(listed(world, duration_filter=9_000))
    assert "one" not in names(listed(world, duration_filter=11_000))
    assert names(listed(world, transactional_id_pattern="t.*|x")) == {"two"}
    assert names(listed(world, transactional_id_pattern="w")) == set()
    for bad in ("(", "(a)\\1", "x" * 2_000):
        assert listed(world, transactional_id_pattern=bad).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_transactions_are_described() -> None:
    world = World()
    producer = world.producer()
    world.add(producer, MORE, ORDERS)
    found, absent, none = world.coordinator.describe(["t", "absent", ""])
    assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (0, "Ongoing", 60_000)
    assert (found.producer_id, found.producer_epoch) == producer
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("orders", [0, 1])]
    assert found.transaction_start_time_ms == world.clock.wall_ms()
    assert absent.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert none.error_code == ErrorCode.INVALID_REQUEST


def test_the_default_timeout_of_kafka_is_the_longest() -> None:
    assert CONFIG.transaction_max_timeout_ms == 15 * 60_000
