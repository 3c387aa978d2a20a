"""The broker's dual commit with difficult clients and znodes: too many of them, unusual ones, or missing ones."""

from __future__ import annotations

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.client.groups import Committed, commit, committed
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from compat_tests.offsets.commands import Znodes, new_topic, offsets
from compat_tests.offsets.conftest import Broker
from compat_tests.offsets.test_dual_commit import delete_group, is_in_step, keep, kept, switch
from compat_tests.waiting import until

MANY = 5_000


def put_many(znodes: Znodes, group: str, count: int) -> None:
    """Commit as an old consumer of a topic with very many partitions does."""
    znodes.client.ensure_path(f"/consumers/{group}/offsets/orders")
    for start in range(0, count, 500):
        transaction = znodes.client.transaction()
        for partition in range(start, start + 500):
            transaction.create(znodes.path(group, partition), b"7")
        transaction.commit()


def test_more_than_can_be_written_within_the_timeout_is_written(znodes: Znodes, broker: Broker) -> None:
    """The timeout limits how long a commit waits, not how long the writing takes."""
    server = broker(barnabas_zookeeper_timeout_ms="10", dual_commit_enabled="false")
    new_topic(server, "wide", 500)
    with Cluster(server.address) as cluster:
        for group in ("a", "b", "c"):
            told = commit(cluster, group, {("wide", partition): Committed(5) for partition in range(500)})
            assert set(told.values()) == {0}
        switch(server, "dual.commit.enabled=true")
        until(lambda: is_in_step(server), "all of it is there")
        assert [znodes.get("c", partition, "wide") for partition in (0, 499)] == [5, 5]


def test_a_group_that_takes_longer_than_the_timeout_to_read_is_read(znodes: Znodes, broker: Broker) -> None:
    """The timeout holds for each piece of the group."""
    server = broker(barnabas_zookeeper_timeout_ms="500")
    put_many(znodes, "wide", MANY)
    with Cluster(server.address) as cluster:
        assert len(committed(cluster, "wide")) == MANY


def test_groups_without_znodes_are_counted_after_a_restart_and_until_they_are_deleted(
    znodes: Znodes, broker: Broker
) -> None:
    server = broker()
    with Cluster(server.address) as cluster:
        keep(cluster, "a/b", 5)
        keep(cluster, "..", 5)
    server.kill()
    server.start()

    def said() -> str:
        return offsets("status", "-b", server.address, status=None)[0]

    with Cluster(server.address) as cluster:
        until(lambda: "2 offset(s) cannot be there" in said(), "both are counted")
        assert [kept(cluster, group) for group in ("a/b", "..")] == [5, 5]
        assert delete_group(cluster, "a/b") == 0
        assert "1 offset(s) cannot be there" in said()
        assert delete_group(cluster, "..") == 0
        assert offsets("status", "-b", server.address)[0].endswith("ZooKeeper is in step\n")


def test_a_negative_offset_is_in_the_log_alone(znodes: Znodes, broker: Broker) -> None:
    """A znode has digits only: with a sign in it, no consumer could read it or commit to it any more."""
    server = broker(barnabas_zookeeper_timeout_ms="5000")
    with Cluster(server.address) as cluster:
        keep(cluster, "g", 3)
        keep(cluster, "g", -5)
        assert znodes.get("g") != -5
        keep(cluster, "g", 7)
        assert (kept(cluster, "g"), znodes.get("g")) == (7, 7)
    assert is_in_step(server)


def test_a_chroot_that_goes_while_the_broker_runs_is_waited_for(znodes: Znodes, broker: Broker) -> None:
    server = broker(zookeeper_connect=f"{znodes.connect}/inner")
    znodes.client.ensure_path("/inner")
    with Cluster(server.address) as cluster:
        keep(cluster, "g", 1)
        path = f"/inner{znodes.path('g', 0)}"
        until(lambda: znodes.client.exists(path), "it is written")
        znodes.client.delete("/inner", recursive=True)
        keep(cluster, "g", 2)
        until(lambda: "/inner: create it" in offsets("status", "-b", server.address, status=None)[0], "it is named")
        znodes.client.ensure_path("/inner")
        until(lambda: znodes.client.exists(path), "it is written again")
        until(lambda: is_in_step(server), "nothing is missing")
        assert znodes.client.get(path)[0] == b"2"


def test_many_groups_cannot_be_deleted_while_zookeeper_is_frozen(znodes: Znodes, broker: Broker) -> None:
    """The deletion of one group waits for ZooKeeper; the other ones are refused at once."""
    server = broker(barnabas_zookeeper_timeout_ms="1000")
    groups = [f"g{number}" for number in range(100)]
    with Cluster(server.address, patience=0) as cluster:
        keep(cluster, "g0", 1)
        with znodes.server.frozen():
            request = DeleteGroupsRequest(groups_names=groups)
            answer = cluster.find_coordinator("g0").ask(request, DeleteGroupsResponse)
    codes = {each.error_code for each in answer.results}
    assert codes == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_a_rewind_in_zookeeper_alone_is_one_in_both(znodes: Znodes, broker: Broker) -> None:
    """The log's offset is older than the rewind; it must not come back when the log is used again."""
    server = broker(barnabas_zookeeper_timeout_ms="5000")
    with Cluster(server.address) as cluster:
        for group in ("rewound", "untouched"):
            keep(cluster, group, 100)
        until(lambda: is_in_step(server), "both are the same")
        switch(server, "offsets.storage=zookeeper")
        keep(cluster, "rewound", 10)
        switch(server, "offsets.storage=kafka")
        until(lambda: is_in_step(server), "both are the same")
        assert [kept(cluster, group) for group in ("rewound", "untouched")] == [10, 100]
        assert [znodes.get(group) for group in ("rewound", "untouched")] == [10, 100]


def test_a_znode_that_cannot_be_read_is_no_missing_one_in_zookeeper_alone(znodes: Znodes, broker: Broker) -> None:
    """Without an offset, a consumer would begin anywhere."""
    from kazoo.security import make_digest_acl

    server = broker(offsets_storage="zookeeper", barnabas_zookeeper_timeout_ms="5000")
    znodes.put("g", 0, b"text")
    znodes.put("g", 1, 5)
    znodes.client.create(znodes.path("g", 2), b"1", acl=[make_digest_acl("other", "one", all=True)])
    with Cluster(server.address, patience=0) as cluster:
        assert kept(cluster, "g", 1) == 5
        for partition in (0, 2):
            with pytest.raises(ClientError, match="UNKNOWN_SERVER_ERROR"):
                kept(cluster, "g", partition)
