"""The broker's dual commit with a real ZooKeeper: where offsets are written, and which offset a fetch returns."""

from __future__ import annotations

import pytest

from barnabas.client.admin import broker_configs, delete_topic, set_broker_config
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.client.groups import Committed, commit, committed, delete_offsets
from barnabas.client.produce import Batch, produce
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from compat_tests.broker_process import Barnabas
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.offsets.commands import Znodes, new_topic, offsets
from compat_tests.offsets.conftest import Broker, one_process
from compat_tests.waiting import until

MISFITS = ["a/b", "..", ".", "", "x\0y", "a\nb", "🐘", "\uffff", "n" * 20_000]
ODD_NAMES = ["a:b", "gruppe-ä", " ", "n" * 10_000, "zookeeper", "%2F"]


def keep(cluster: Cluster, group: str, offset: int, partition: int = 0, metadata: str = "") -> None:
    told = commit(cluster, group, {("orders", partition): Committed(offset, metadata)})
    assert set(told.values()) == {0}, told


def kept(cluster: Cluster, group: str, partition: int = 0) -> int | None:
    found = committed(cluster, group, [("orders", partition)])
    return found["orders", partition].offset if found else None


def delete_group(cluster: Cluster, group: str) -> int:
    request = DeleteGroupsRequest(groups_names=[group])
    return cluster.find_coordinator(group).ask(request, DeleteGroupsResponse).results[0].error_code


def switch(server: Barnabas, *settings: str) -> None:
    """Change settings of the broker at run time."""
    with Cluster(server.address) as cluster:
        set_broker_config(cluster, dict(setting.split("=") for setting in settings))


def is_in_step(server: Barnabas) -> bool:
    return "in step" in offsets("status", "-b", server.address, status=None)[0]


# --- one broker for all -----------------------------------------------------------------------------------------------


def test_a_commit_is_in_both_places_when_it_is_answered(dual_znodes: Znodes, cluster: Cluster) -> None:
    keep(cluster, "both", 5, metadata="note")
    assert dual_znodes.get("both") == 5
    assert committed(cluster, "both") == {("orders", 0): Committed(5, "note")}
    keep(cluster, "both", 7)
    keep(cluster, "both", 9, partition=2)
    assert (dual_znodes.get("both"), dual_znodes.get("both", 2)) == (7, 9)


def test_a_fetch_takes_the_larger_one(dual_znodes: Znodes, cluster: Cluster) -> None:
    keep(cluster, "larger", 5, metadata="note")
    dual_znodes.put("larger", 0, 8)
    dual_znodes.put("larger", 1, 3)
    assert committed(cluster, "larger") == {("orders", 0): Committed(8), ("orders", 1): Committed(3)}
    assert committed(cluster, "larger", [("orders", 0), ("orders", 2)]) == {("orders", 0): Committed(8)}
    dual_znodes.put("larger", 0, 4)
    assert committed(cluster, "larger", [("orders", 0)]) == {("orders", 0): Committed(5, "note")}


def test_a_rewind_wins_in_both_places(dual_znodes: Znodes, cluster: Cluster) -> None:
    keep(cluster, "rewound", 100)
    keep(cluster, "rewound", 10)
    assert (kept(cluster, "rewound"), dual_znodes.get("rewound")) == (10, 10)
    dual_znodes.put("rewound", 0, 50)
    keep(cluster, "rewound", 20)
    assert (kept(cluster, "rewound"), dual_znodes.get("rewound")) == (20, 20)


def test_a_commit_of_no_offset_is_none_in_both_places(dual_znodes: Znodes, cluster: Cluster) -> None:
    keep(cluster, "none", 5)
    keep(cluster, "none", -1)
    assert (kept(cluster, "none"), dual_znodes.get("none")) == (None, None)
    keep(cluster, "none", 6)
    assert (kept(cluster, "none"), dual_znodes.get("none")) == (6, 6)


def test_requests_that_are_sent_ahead_see_each_other(dual_znodes: Znodes, cluster: Cluster) -> None:
    connection = cluster.find_coordinator("ahead")
    seen = []
    for offset in (50, 20, 70):
        posted = [
            connection.post(
                OffsetCommitRequest(
                    group_id="ahead",
                    generation_id_or_member_epoch=-1,
                    topics=[OffsetCommitRequestTopic("orders", partitions=[OffsetCommitRequestPartition(0, offset)])],
                ),
                last_version=9,
            ),
            connection.post(OffsetFetchRequest(group_id="ahead", topics=None), last_version=7),
        ]
        connection.answer(posted[0], OffsetCommitResponse)
        answer = connection.answer(posted[1], OffsetFetchResponse)
        seen.append(answer.topics[0].partitions[0].committed_offset)
    assert seen == [50, 20, 70]


def test_a_fetch_of_very_many_harms_nobody_else(dual_znodes: Znodes, cluster: Cluster, dual: Barnabas) -> None:
    """Unknown partitions and unknown groups."""
    keep(cluster, "other", 5)
    many = OffsetFetchRequestTopics(name="orders", partition_indexes=list(range(100_000)))
    groups = [OffsetFetchRequestGroup(group_id=f"made-up-{n}", topics=[many] if n == 0 else None) for n in range(2000)]
    with Cluster(dual.address) as stranger:
        connection = stranger.find_coordinator("made-up")
        posted = connection.post(OffsetFetchRequest(groups=groups), last_version=9)
        assert kept(cluster, "other") == 5
        keep(cluster, "other", 6)
        assert dual_znodes.get("other") == 6
        answer = connection.answer(posted, OffsetFetchResponse)
        elsewhere = {ErrorCode.NOT_COORDINATOR} if dual.processes > 1 else set()
        codes = {group.error_code for group in answer.groups}
        assert codes <= {0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *elsewhere}
    assert kept(cluster, "other") == 6


def test_what_is_deleted_does_not_come_back(dual_znodes: Znodes, cluster: Cluster) -> None:
    for partition in range(3):
        keep(cluster, "deleted", 5, partition)
    assert delete_offsets(cluster, "deleted", [("orders", 0)]) == {("orders", 0): 0}
    assert (dual_znodes.get("deleted", 0), dual_znodes.get("deleted", 1)) == (None, 5)
    assert kept(cluster, "deleted") is None
    assert delete_group(cluster, "deleted") == 0
    assert committed(cluster, "deleted") == {}
    assert not dual_znodes.client.exists("/consumers/deleted"), "nothing is left of it"
    keep(cluster, "deleted", 2)
    assert (kept(cluster, "deleted"), dual_znodes.get("deleted")) == (2, 2)


def test_a_group_that_only_zookeeper_has_can_be_deleted_unless_it_runs(dual_znodes: Znodes, cluster: Cluster) -> None:
    dual_znodes.put("old", 0, 8)
    dual_znodes.client.create("/consumers/old/ids/old_host-1", b"", makepath=True, ephemeral=True)
    assert delete_group(cluster, "old") == ErrorCode.NON_EMPTY_GROUP
    assert dual_znodes.get("old") == 8
    dual_znodes.client.delete("/consumers/old/ids/old_host-1")
    assert delete_offsets(cluster, "old", [("orders", 0)]) == {("orders", 0): 0}
    assert dual_znodes.get("old") is None
    dual_znodes.put("old", 0, 8)
    assert delete_group(cluster, "old") == 0
    assert dual_znodes.get("old") is None
    assert delete_group(cluster, "old") == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_topic_that_is_made_again_has_no_offsets(dual_znodes: Znodes, cluster: Cluster, dual: Barnabas) -> None:
    new_topic(dual, "again")
    assert commit(cluster, "topics", {("again", 0): Committed(500)}) == {("again", 0): 0}
    dual_znodes.put("topics-old", 0, 300, topic="again")
    delete_topic(cluster, "again")
    new_topic(dual, "again")
    assert committed(cluster, "topics") == committed(cluster, "topics-old") == {}
    dual_znodes.put("topics-old", 0, 4, topic="again")
    assert committed(cluster, "topics-old") == {("again", 0): Committed(4)}, "of the new topic"


def test_a_position_that_cannot_be_read_is_an_error_and_not_none(dual_znodes: Znodes, cluster: Cluster) -> None:
    """Without a position, a consumer would begin anywhere."""
    dual_znodes.put("text", 0, b"no number")
    dual_znodes.put("text", 1, 7)
    with pytest.raises(ClientError, match="UNKNOWN_SERVER_ERROR"):
        kept(cluster, "text")
    assert kept(cluster, "text", 1) == 7
    keep(cluster, "text", 5)
    assert kept(cluster, "text") == 5, "the log has it"


def test_odd_names_that_zookeeper_takes(dual_znodes: Znodes, cluster: Cluster) -> None:
    for group in ODD_NAMES:
        keep(cluster, group, 5)
        assert dual_znodes.get(group) == 5
        dual_znodes.put(group, 0, 6)
        assert kept(cluster, group) == 6


# --- a broker of the test's own ---------------------------------------------------------------------------------------


def test_who_looks_at_a_group_of_zookeeper_changes_nothing(znodes: Znodes, broker: Broker) -> None:
    server = broker()
    znodes.put("old", 0, 8)
    with Cluster(server.address) as cluster:
        assert committed(cluster, "old") == {("orders", 0): Committed(8)}
        switch(server, "dual.commit.enabled=false")
        assert committed(cluster, "old") == {}


def test_what_a_member_gets_from_zookeeper_is_in_the_log_when_dual_commit_ends(znodes: Znodes, broker: Broker) -> None:
    """This includes partitions without new records, for which the member commits nothing."""
    server = broker(barnabas_zookeeper_timeout_ms="5000")
    batch = build_batch([Record(None, b"%d" % n, 1_700_000_000_000) for n in range(10)])
    with Cluster(server.address) as cluster:
        for partition in range(3):
            assert produce(cluster, [Batch("orders", partition, batch)], acks=-1)["orders", partition].error_code == 0
            znodes.put("g", partition, 10)
        member = ConfluentDriver(server.address).join("g", "orders")
        taken = "copying 3 offsets from the second store into the log"
        until(lambda: taken in server.log_file.read_text(), "the member has asked for its positions")
        switch(server, "dual.commit.enabled=false")
        assert [kept(cluster, "g", partition) for partition in range(3)] == [10, 10, 10]
        member.close()
        assert member.records == []


@one_process
def test_a_group_that_can_have_no_znode_is_kept_in_the_log_alone(znodes: Znodes, broker: Broker) -> None:
    server = broker(barnabas_zookeeper_timeout_ms="5000")
    with Cluster(server.address) as cluster:
        for group in MISFITS:
            keep(cluster, group, 5)
            assert kept(cluster, group) == 5
        assert znodes.client.get_children("/") == []
        keep(cluster, "next", 1)
        assert znodes.get("next") == 1, "the next request of the connection is served"
        assert znodes.client.get_children("/consumers") == ["next"]
        said, _ = offsets("status", "-b", server.address, status=1)
        assert f"{len(MISFITS)} offset(s) cannot be there" in said
        assert server.log_file.read_text().count("offsets.zookeeper.refused") == 1, "one line for all"
        for group in filter(None, MISFITS):
            assert delete_group(cluster, group) == 0


def test_a_znode_that_may_not_be_written_costs_itself_only(znodes: Znodes, broker: Broker) -> None:
    from kazoo.security import make_digest_acl

    server = broker(barnabas_zookeeper_timeout_ms="5000")
    znodes.client.ensure_path("/consumers/g/offsets/orders")
    acl = [make_digest_acl("other", "one", all=True)]
    znodes.client.create("/consumers/g/offsets/orders/0", b"1", acl=acl)
    znodes.client.create("/consumers/g/offsets/orders/1", b"text")
    with Cluster(server.address) as cluster:
        told = commit(cluster, "g", {("orders", n): Committed(5) for n in range(3)})
        assert set(told.values()) == {0}
        assert znodes.get("g", 2) == 5
        assert kept(cluster, "g") == 5
    said, _ = offsets("status", "-b", server.address, status=1)
    assert "2 offset(s) cannot be there" in said
    assert "the credentials do not allow it" in said
    assert "'text' is not a number" in said


@one_process
def test_while_zookeeper_is_frozen_commits_go_on(znodes: Znodes, broker: Broker) -> None:
    """Once the session is gone, no commit waits: their timeout is longer than any client waits for an answer.

    `broker/tests/test_offset_mirror.py` tests, with a virtual clock, that no commit waits after a timeout either.
    """
    server = broker(zookeeper_session_timeout_ms="1000", barnabas_zookeeper_timeout_ms="1000000")
    with Cluster(server.address) as cluster:
        keep(cluster, "g", 5)
        with znodes.server.frozen():
            for offset in range(6, 107):
                keep(cluster, "g", offset)
            with Cluster(server.address, patience=0) as impatient:
                assert kept(impatient, "g") == 106, "on its way"
                with pytest.raises(ClientError, match="COORDINATOR_LOAD_IN_PROGRESS"):
                    kept(impatient, "other")
                assert delete_group(impatient, "g") == ErrorCode.COORDINATOR_NOT_AVAILABLE
            said, _ = offsets("status", "-b", server.address, status=1)
            assert "1 offset(s) behind" in said
        until(lambda: znodes.get("g") == 106, "it has caught up")
        until(lambda: is_in_step(server), "it says so")
        assert kept(cluster, "other") is None
    log = server.log_file.read_text()
    assert log.count("offsets.zookeeper.behind ") == 1, "one line for each change"
    assert log.count("offsets.zookeeper.in_step ") == 1


def test_after_a_kill_the_log_is_caught_up_with(znodes: Znodes, broker: Broker) -> None:
    """Forward and back: the last commit counts."""
    server = broker(barnabas_zookeeper_timeout_ms="500")
    with Cluster(server.address) as cluster:
        keep(cluster, "forward", 5)
        keep(cluster, "rewound", 100)
        keep(cluster, "elsewhere", 5)
        until(lambda: znodes.get("elsewhere") == 5, "all of it is there")
    with znodes.server.frozen(), Cluster(server.address) as cluster:
        keep(cluster, "forward", 50)
        keep(cluster, "rewound", 10)
        keep(cluster, "new", 7)
        server.kill()
    znodes.put("elsewhere", 0, 9)
    server.start()
    with Cluster(server.address) as cluster:
        assert [kept(cluster, group) for group in ("forward", "rewound", "new", "elsewhere")] == [50, 10, 7, 9]
        until(lambda: is_in_step(server), "it has caught up")
        assert [znodes.get(group) for group in ("forward", "rewound", "new", "elsewhere")] == [50, 10, 7, 9]


@one_process
def test_zookeeper_alone(znodes: Znodes, broker: Broker) -> None:
    server = broker(offsets_storage="ZooKeeper", barnabas_zookeeper_timeout_ms="1000")
    znodes.put("g", 0, 8)
    with Cluster(server.address, patience=0) as cluster:
        assert kept(cluster, "g") == 8
        keep(cluster, "g", 3)
        assert (kept(cluster, "g"), znodes.get("g")) == (3, 3)
        assert commit(cluster, "a/b", {("orders", 0): Committed(1)}) == {("orders", 0): ErrorCode.INVALID_GROUP_ID}
        with znodes.server.frozen():
            for group in ("g", "h"):
                with pytest.raises(ClientError, match="COORDINATOR_NOT_AVAILABLE"):
                    keep(cluster, group, 4)
            with pytest.raises(ClientError, match="COORDINATOR_LOAD_IN_PROGRESS"):
                kept(cluster, "g")
    with Cluster(server.address) as cluster:
        keep(cluster, "g", 5)
        assert znodes.get("h") is None, "what was refused at once is not written later"
    server.kill()
    server.start()
    with Cluster(server.address) as cluster:
        assert kept(cluster, "g") == 5
        assert delete_group(cluster, "g") == 0
        assert (kept(cluster, "g"), znodes.get("g")) == (None, None)


def test_the_storage_is_switched_at_run_time_in_the_safe_order_only(znodes: Znodes, broker: Broker) -> None:
    server = broker(dual_commit_enabled="false", barnabas_zookeeper_timeout_ms="5000")
    with Cluster(server.address) as cluster:
        keep(cluster, "g", 5)
        assert znodes.get("g") is None
        with pytest.raises(ClientError, match=r"set dual\.commit\.enabled=true first"):
            switch(server, "offsets.storage=zookeeper")
        with pytest.raises(ClientError, match=r"valid values are kafka \(or its alias ads\) and zookeeper"):
            switch(server, "offsets.storage=redis")
        switch(server, "dual.commit.enabled=true")
        until(lambda: is_in_step(server), "the log is caught up with")
        assert znodes.get("g") == 5
        switch(server, "offsets.storage=zookeeper")
        keep(cluster, "g", 6)
        assert znodes.get("g") == 6
        with pytest.raises(ClientError, match=r"go through dual\.commit\.enabled=true"):
            switch(server, "offsets.storage=ads", "dual.commit.enabled=false")
    server.kill()
    server.start()
    with Cluster(server.address) as cluster:
        assert kept(cluster, "g") == 6, "the switch outlives a kill"
        switch(server, "offsets.storage=ads")
        assert kept(cluster, "g") == 6
        until(lambda: is_in_step(server), "both are the same")
        keep(cluster, "g", 7)
        switch(server, "dual.commit.enabled=false")
        keep(cluster, "g", 8)
        assert (kept(cluster, "g"), znodes.get("g")) == (8, 7)


def test_secrets_are_not_shown(znodes: Znodes, broker: Broker) -> None:
    from kazoo.exceptions import NoAuthError

    server = broker(barnabas_zookeeper_credentials="mover:se:cret", barnabas_zookeeper_timeout_ms="5000")
    with Cluster(server.address) as cluster:
        keep(cluster, "g", 1)
        (shown, *_) = broker_configs(cluster).values()
    with pytest.raises(NoAuthError):  # only clients with the credentials can read it
        znodes.get("g")
    znodes.client.add_auth("digest", "mover:se:cret")
    assert znodes.get("g") == 1
    assert shown["barnabas.zookeeper.credentials"] is None
    assert shown["zookeeper.connect"] == znodes.connect
    assert "se:cret" not in server.log_file.read_text()


def test_a_transaction_s_offsets_follow_its_end(znodes: Znodes, broker: Broker) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    server = broker()
    consumer = Consumer({"bootstrap.servers": server.address, "group.id": "g"})
    metadata = consumer.consumer_group_metadata()
    consumer.close()
    producer = Producer({"bootstrap.servers": server.address, "transactional.id": "t"})
    producer.init_transactions()
    for offset, end in ((5, producer.abort_transaction), (6, producer.commit_transaction)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition("orders", 0, offset)], metadata)
        assert znodes.get("g") is None
        end()
    until(lambda: znodes.get("g") == 6, "the committed one is there")
    until(lambda: is_in_step(server), "it says so")
    switch(server, "offsets.storage=zookeeper")
    producer.begin_transaction()
    with pytest.raises(KafkaException, match=r"[mM]essage format"):
        producer.send_offsets_to_transaction([TopicPartition("orders", 0, 9)], metadata)


def test_a_chroot_that_is_not_there_is_named_and_used_when_it_is_made(znodes: Znodes, broker: Broker) -> None:
    server = broker(zookeeper_connect=f"{znodes.connect}/missing", barnabas_zookeeper_timeout_ms="1000")
    with Cluster(server.address) as cluster:
        keep(cluster, "g", 1)
    said, _ = offsets("status", "-b", server.address, status=1)
    assert "/missing: create it" in said
    znodes.client.ensure_path("/missing")
    until(lambda: znodes.client.exists("/missing/consumers/g/offsets/orders/0"), "it is written")
