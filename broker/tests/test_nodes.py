"""Other nodes in the metadata log: clients learn of them, and are sent to the leaders."""

from __future__ import annotations

from barnabas.broker.clock import Clock
from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.tests.client import batch_of
from barnabas.broker.tests.conftest import Running, Start, until
from barnabas.wire.errors import ErrorCode
from barnabas.wire.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.wire.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.wire.records.cluster_metadata import (
    BrokerEndpoint,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from barnabas.wire.types import Message

SECOND = RegisterBrokerRecord(
    broker_id=2,
    end_points=[BrokerEndpoint("PLAINTEXT", "second.example", 9093), BrokerEndpoint("OTHER", "hidden.example", 9094)],
    rack="r2",
    fenced=False,
)


def moved(topic_id: bytes, index: int, node: int) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=node, isr=[node], replicas=[node])


async def change(broker: Running, *records: Message) -> None:
    async with broker.node.topics.changes:
        await broker.node.topics.commit(list(records))


async def test_clients_are_told_of_all_nodes_that_they_can_reach(start: Start) -> None:
    async with start() as broker:
        hidden = RegisterBrokerRecord(broker_id=3, end_points=[BrokerEndpoint("OTHER", "third.example", 9095)])
        await change(broker, SECOND, hidden)
        client = await broker.client()
        cluster = await client.ask(DescribeClusterRequest())
        assert [(each.broker_id, each.host, each.port, each.rack) for each in cluster.brokers][1:] == [
            (2, "second.example", 9093, "r2")
        ]
        assert cluster.brokers[0].broker_id == cluster.controller_id == 1
        metadata = await client.ask(MetadataRequest(topics=[]))
        assert [(each.node_id, each.host) for each in metadata.brokers][1:] == [(2, "second.example")]
        await change(broker, UnregisterBrokerRecord(broker_id=2))
        assert [each.broker_id for each in (await client.ask(DescribeClusterRequest())).brokers] == [1]


async def test_no_node_can_be_unregistered(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await change(broker, SECOND)
        for node in (1, 2):
            refused = await client.ask(UnregisterBrokerRequest(node))
            assert refused.error_code == ErrorCode.INVALID_REQUEST
            assert "--processes" in (refused.error_message or "")
        assert (await client.ask(UnregisterBrokerRequest(3))).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert len((await client.ask(DescribeClusterRequest())).brokers) == 2


async def test_a_coordinator_is_the_leader_of_its_partition(start: Start) -> None:
    async with start() as broker:
        await change(broker, SECOND)
        client = await broker.client()
        for key_type, topic in ((0, OFFSETS_TOPIC), (1, TRANSACTIONS_TOPIC)):
            first = await client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "b"]))
            assert [each.node_id for each in first.coordinators] == [1, 1]
            image = broker.node.metadata.topics[topic]
            which = broker.node.groups.coordinator if key_type == 0 else broker.node.transactions.coordinator
            at = which.partition_of("a")
            assert which.partition_of("b") != at
            await change(broker, moved(image.topic_id, at, 2))
            found = await client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "b"]))
            assert (found.coordinators[0].node_id, found.coordinators[0].host) == (2, "second.example")
            assert found.coordinators[1].node_id == 1
            await change(broker, moved(image.topic_id, at, 7))
            (gone,) = (await client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a"]))).coordinators
            assert (gone.error_code, gone.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


async def test_what_another_node_coordinates_is_unloaded_and_read_again_when_it_comes_back(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await change(broker, SECOND)
        await client.create_topic("t")
        await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]))
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[part])])
        begin = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        assert (await client.ask(commit, 8)).topics[0].partitions[0].error_code == 0
        first = await client.ask(begin, 4)
        homes = []
        for topic, of in (
            (OFFSETS_TOPIC, broker.node.groups.coordinator.partition_of("g")),
            (TRANSACTIONS_TOPIC, broker.node.transactions.coordinator.partition_of("x")),
        ):
            homes.append((broker.node.metadata.topics[topic].topic_id, of))
        await change(broker, *(moved(*home, 2) for home in homes))
        assert (await client.ask(asked, 8)).groups[0].error_code == ErrorCode.NOT_COORDINATOR
        assert (await client.ask(begin, 4)).error_code == ErrorCode.NOT_COORDINATOR
        await change(broker, *(moved(*home, 1) for home in homes))

        groups, transactions = broker.node.groups.coordinator, broker.node.transactions.coordinator
        (_, group_at), (_, id_at) = homes
        await until(lambda: group_at in groups.shards.by_partition and groups.shards.by_partition[group_at].is_loaded)
        ids = transactions.shards.by_partition
        await until(lambda: id_at in ids and ids[id_at].is_loaded)
        (topic_found,) = (await client.ask(asked, 8)).groups[0].topics
        assert topic_found.partitions[0].committed_offset == 5
        again = await client.ask(begin, 4)
        assert (again.producer_id, again.producer_epoch > first.producer_epoch) == (first.producer_id, True)


async def test_a_partition_that_another_node_leads_is_served_there(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await change(broker, SECOND)
        await client.create_topic("t", 2)
        assert (await client.produce("t", batch_of(b"mine"), 0)).error_code == 0
        image = broker.node.metadata.topics["t"]
        await change(broker, moved(image.topic_id, 0, 2))
        assert (await client.produce("t", batch_of(b"v"), 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await client.fetch("t", 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await client.produce("t", batch_of(b"v"), 1)).error_code == 0
        told = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
        leaders = {each.partition_index: (each.leader_id, each.leader_epoch) for each in told.topics[0].partitions}
        assert leaders == {0: (2, 1), 1: (1, 0)}
        await change(broker, moved(image.topic_id, 0, 1))
        assert (await client.produce("t", batch_of(b"back"), 0)).error_code == 0
        assert broker.node.vnodes["t", 0].latest_epoch == 2


def test_a_snapshot_keeps_them() -> None:
    image = MetadataImage(1, Clock())
    image.apply(SECOND)
    again = MetadataImage(1, Clock())
    for record in image.records():
        again.apply(record)
    assert again.nodes == image.nodes
    assert again.nodes[2].addresses["OTHER"] == ("hidden.example", 9094)
