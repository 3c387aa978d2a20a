"""Several nodes act as one broker: a change made at one node holds at all of them, and each serves what it leads."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

from barnabas.broker.between.channel import Channel
from barnabas.broker.between.followed_topics import FollowedTopics
from barnabas.broker.between.peers import Unreachable
from barnabas.broker.metadata import topic_manager
from barnabas.broker.node import Node
from barnabas.broker.security.authorizer import STANDARD
from barnabas.broker.tests.client import batch_of, connect, fetch_request, produce_request
from barnabas.broker.tests.conftest import Start, until
from barnabas.broker.tests.sasl_client import upsertion
from barnabas.broker.tests.several import OWNER, Several, several
from barnabas.storage.claim import Claim
from barnabas.storage.errors import StorageError
from barnabas.storage.io import Io
from barnabas.wire.acls import CLUSTER_NAME, Operation, Permission, ResourceType
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from barnabas.wire.messages.alter_configs import AlterableConfig as OldConfig
from barnabas.wire.messages.alter_configs import AlterConfigsRequest
from barnabas.wire.messages.alter_configs import AlterConfigsResource as OldResource
from barnabas.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.describe_acls import DescribeAclsRequest
from barnabas.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.describe_quorum import DescribeQuorumRequest, TopicData
from barnabas.wire.messages.describe_quorum import PartitionData as QuorumPartition
from barnabas.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from barnabas.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from barnabas.wire.messages.envelope import EnvelopeRequest
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.fetch_snapshot import FetchSnapshotRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.node_metrics import NodeMetricsRequest
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.wire.types import Message

TOPIC, BROKER = 2, 4
NODES = (1, 2, 3)


def created(name: str, count: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=count, replication_factor=1)])


async def move(nodes: Several, topic: str, to: dict[int, int | None], by: int = OWNER) -> list[int]:
    """Ask a node to move partitions. Returns the error code of each."""
    parts = [ReassignablePartition(index, None if node is None else [node]) for index, node in to.items()]
    asked = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(topic, parts)])
    answer = await (await nodes.client(by)).ask(asked)
    return [part.error_code for part in answer.responses[0].partitions]


def leads(node: Node, topic: str, index: int, leader: int) -> bool:
    """Whether a node knows the leader of a partition."""
    return node.metadata.topics[topic].partitions[index].node == leader


def fetch_by_id(topic_id: bytes, index: int) -> FetchRequest:
    part = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(topic_id=topic_id, partitions=[part])])


async def values(nodes: Several, topic: str, index: int, leader: int) -> int:
    """The high watermark of a partition at its leader."""
    return int((await (await nodes.client(leader)).fetch(topic, 0, index)).high_watermark)


async def test_clients_are_told_of_all_nodes_and_of_one_controller(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        for node in NODES:
            answer = await (await nodes.client(node)).ask(DescribeClusterRequest())
            assert [(each.broker_id, each.port) for each in answer.brokers] == [(n, nodes[n].port) for n in NODES]
            assert answer.controller_id == OWNER
        nodes.no_errors()


async def test_partitions_are_spread_and_served_by_their_leaders_only(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        await (await nodes.client(3)).create_topic("t", 6)
        leaders = await nodes.leaders("t", 2)
        assert sorted(leaders.values()) == [1, 1, 2, 2, 3, 3]
        for index, node in itertools.product(leaders, NODES):
            client = await nodes.client(node)
            code = (await client.produce("t", batch_of(b"v"), index)).error_code
            assert code == (0 if leaders[index] == node else ErrorCode.NOT_LEADER_OR_FOLLOWER)
            code = (await client.fetch("t", 0, index)).error_code
            assert code == (0 if leaders[index] == node else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        nodes.no_errors()


class Pair(NamedTuple):
    """A change, a request that reads it, and the expected value. `n` distinguishes the changes."""

    change: Callable[[str], Message]
    look: Callable[[str], Message]
    seen: Callable[[Any, str], object]
    errors: Callable[[Any], list[int]]


def _alter(kind: int, name: str, key: str, value: str | None) -> IncrementalAlterConfigsRequest:
    operation = 0 if value is not None else 1
    return IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, [AlterableConfig(key, operation, value)])])


def _configs(kind: int, name: str, key: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(resources=[DescribeConfigsResource(kind, name, [key])])


def _metadata(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)


def _value(answer: Any) -> str:
    return str(answer.results[0].configs[0].value)


def _acls(name: str) -> AclCreation:
    return AclCreation(ResourceType.TOPIC, f"acl{name}", 3, "User:a", "*", Operation.READ, Permission.ALLOW)


def _filter(name: str) -> tuple[int, str, int, None, None, int, int]:
    return ResourceType.TOPIC, f"acl{name}", 3, None, None, 1, 1


def _quota(name: str, *ops: OpData) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest([EntryData([EntityData("user", f"u{name}")], list(ops))])


def _responses(answer: Any) -> list[int]:
    return [each.error_code for each in answer.responses]


def _results(answer: Any) -> list[int]:
    return [each.error_code for each in answer.results]


GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
#: In this order: some changes need the objects that earlier ones create.
PAIRS = {
    "CreateTopics, Metadata": Pair(
        lambda n: created(f"t{n}", 2),
        lambda n: _metadata(f"t{n}"),
        lambda answer, n: len(answer.topics[0].partitions) == 2,
        lambda answer: [each.error_code for each in answer.topics],
    ),
    "CreatePartitions, DescribeTopicPartitions": Pair(
        lambda n: CreatePartitionsRequest(topics=[CreatePartitionsTopic(f"t{n}", 5, None)]),
        lambda n: DescribeTopicPartitionsRequest([TopicRequest(f"t{n}")]),
        lambda answer, n: len(answer.topics[0].partitions) == 5,
        _results,
    ),
    "IncrementalAlterConfigs of a topic, DescribeConfigs": Pair(
        lambda n: _alter(TOPIC, f"t{n}", "retention.ms", "1234"),
        lambda n: _configs(TOPIC, f"t{n}", "retention.ms"),
        lambda answer, n: _value(answer) == "1234",
        _responses,
    ),
    "AlterConfigs of a topic, DescribeConfigs": Pair(
        lambda n: AlterConfigsRequest([OldResource(TOPIC, f"t{n}", [OldConfig("retention.ms", "77")])]),
        lambda n: _configs(TOPIC, f"t{n}", "retention.ms"),
        lambda answer, n: _value(answer) == "77",
        _responses,
    ),
    "IncrementalAlterConfigs of all brokers, DescribeConfigs of a topic": Pair(
        lambda n: _alter(BROKER, "", "log.retention.ms", f"1000{n}"),
        lambda n: _configs(TOPIC, "defaults", "retention.ms"),
        lambda answer, n: _value(answer) == f"1000{n}",
        _responses,
    ),
    "DeleteTopics, Metadata": Pair(
        lambda n: DeleteTopicsRequest(topics=[DeleteTopicState(name=f"t{n}")], timeout_ms=1000),
        lambda n: _metadata(f"t{n}"),
        lambda answer, n: answer.topics[0].error_code == GONE,
        _responses,
    ),
    "CreateAcls, DescribeAcls": Pair(
        lambda n: CreateAclsRequest([_acls(n)]),
        lambda n: DescribeAclsRequest(*_filter(n)),
        lambda answer, n: [each.resource_name for each in answer.resources] == [f"acl{n}"],
        _results,
    ),
    "DeleteAcls, DescribeAcls": Pair(
        lambda n: DeleteAclsRequest([DeleteAclsFilter(*_filter(n))]),
        lambda n: DescribeAclsRequest(*_filter(n)),
        lambda answer, n: answer.resources == [],
        lambda answer: [each.error_code for each in answer.filter_results],
    ),
    "AlterClientQuotas, DescribeClientQuotas": Pair(
        lambda n: _quota(n, OpData("producer_byte_rate", 1000.0)),
        lambda n: DescribeClientQuotasRequest([ComponentData("user", 0, f"u{n}")], True),
        lambda answer, n: [each.value for entry in answer.entries for each in entry.values] == [1000.0],
        lambda answer: [each.error_code for each in answer.entries],
    ),
    "AlterUserScramCredentials, DescribeUserScramCredentials": Pair(
        lambda n: AlterUserScramCredentialsRequest(upsertions=[upsertion(f"s{n}", "secret")]),
        lambda n: DescribeUserScramCredentialsRequest([UserName(f"s{n}")]),
        lambda answer, n: _results(answer) == [0],
        _results,
    ),
    "FindCoordinator, Metadata of the topic that it makes": Pair(
        lambda n: FindCoordinatorRequest(key_type=0, coordinator_keys=[f"g{n}"]),
        lambda n: _metadata("__consumer_offsets"),
        lambda answer, n: len(answer.topics[0].partitions) == 3,
        lambda answer: [each.error_code for each in answer.coordinators],
    ),
    "Metadata that makes a topic, Metadata": Pair(
        lambda n: MetadataRequest(topics=[MetadataRequestTopic(name=f"auto{n}")]),
        lambda n: _metadata(f"auto{n}"),
        lambda answer, n: answer.topics[0].error_code == 0,
        lambda answer: [each.error_code for each in answer.topics],
    ),
}


@pytest.mark.parametrize(("asked", "looked"), list(itertools.product(NODES, NODES)))
async def test_what_one_node_has_answered_is_seen_at_any_other(tmp_path: Path, asked: int, looked: int) -> None:
    """The two requests go over two connections to two nodes, one after the other."""
    settings: dict[str, Any] = {"authorizer_class_name": STANDARD, "super_users": "User:ANONYMOUS"}
    async with several(tmp_path, offsets_topic_num_partitions="3", **settings) as nodes:
        here, there = await nodes.client(asked), await nodes[looked].client()
        await here.create_topic("defaults")
        for n, (name, pair) in itertools.product("123", PAIRS.items()):
            answer = await here.ask(pair.change(n))
            assert not any(pair.errors(answer)), (name, answer)
            looked_at = await there.ask(pair.look(n))
            assert pair.seen(looked_at, n), (name, looked_at)
        nodes.no_errors()


async def seen_topic(client: Any, name: str) -> Any:
    (topic,) = (await client.ask(_metadata(name))).topics
    return topic.error_code, len(topic.partitions)


async def test_a_coordinators_topic_is_the_same_whichever_node_needs_it(tmp_path: Path) -> None:
    for node in NODES:
        async with several(tmp_path / str(node), offsets_topic_num_partitions="7") as nodes:
            asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            assert (await (await nodes.client(node)).ask(asked)).coordinators[0].error_code == 0
            topic = nodes.owner.metadata.topics["__consumer_offsets"]
            assert (len(topic.partitions), topic.configs["cleanup.policy"]) == (7, "compact")


async def test_a_name_is_free_again_everywhere_when_its_topic_is_deleted(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        for round_number in range(6):
            asked, other = NODES[round_number % 3], NODES[(round_number + 1) % 3]
            await (await nodes.client(asked)).create_topic("again", 4)
            leaders = await nodes.leaders("again", other)
            for index, leader in leaders.items():
                written = await (await nodes.client(leader)).produce("again", batch_of(b"v"), index)
                assert (written.error_code, written.base_offset) == (0, 0), "nothing is left of the one before"
            gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="again")], timeout_ms=1000)
            assert (await (await nodes.client(other)).ask(gone, 6)).responses[0].error_code == 0
        nodes.no_errors()


async def test_a_change_that_the_owner_refuses_says_why_at_any_node(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t")
        for node in NODES:
            (answer,) = (await (await nodes.client(node)).ask(created("t"))).topics
            assert (answer.error_code, answer.error_message) == (
                ErrorCode.TOPIC_ALREADY_EXISTS,
                "Topic 't' already exists.",
            )
        nodes.no_errors()


async def test_producer_ids_are_given_once(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        found = []
        for node in NODES * 3:
            answer = await (await nodes.client(node)).ask(InitProducerIdRequest(transactional_id=None))
            found.append(answer.producer_id)
        assert len(set(found)) == len(found)
        nodes.no_errors()


async def test_only_nodes_ask_what_nodes_ask(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        for request in (EnvelopeRequest(b"", b"", b""), NodeMetricsRequest(), FetchSnapshotRequest()):
            client = await nodes[2].client()
            await client.send(request, 0)
            assert await client.is_closed()


async def test_a_partition_moves_with_its_records_and_comes_back(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t", 3)
        leader = (await nodes.leaders("t"))[0]
        assert (await (await nodes.client(leader)).produce("t", batch_of(b"a", b"b"), 0)).error_code == 0
        epochs = []
        for target, by in ((2, 1), (3, 2), (1, 3), (2, 2)):
            assert await move(nodes, "t", {0: target}, by=by) == [0]
            await until(lambda: all(leads(each.node, "t", 0, target) for each in nodes.running.values()))
            assert await nodes.leaders("t", by) == {**await nodes.leaders("t"), 0: target}
            before = await values(nodes, "t", 0, target)
            written = await (await nodes.client(target)).produce("t", batch_of(b"c"), 0)
            assert (written.error_code, written.base_offset) == (0, before)
            epochs.append(nodes.owner.metadata.topics["t"].partitions[0].epoch)
        assert epochs == sorted(set(epochs)), "each leader has an epoch of its own"
        listed = await (await nodes.client(3)).ask(ListPartitionReassignmentsRequest())
        assert listed.topics == []
        nodes.no_errors()


async def test_moves_that_cannot_be_are_refused(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t", 2)
        assert await move(nodes, "t", {0: 9, 1: None, 7: 1}, by=2) == [
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        nodes.no_errors()


async def test_a_node_that_was_cut_off_comes_back_to_what_it_led(tmp_path: Path) -> None:
    """The other nodes serve meanwhile, and the acknowledged records are there."""
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t", 6)
        leaders = await nodes.leaders("t")
        for index, leader in leaders.items():
            assert (await (await nodes.client(leader)).produce("t", batch_of(b"v"), index)).error_code == 0
        await nodes.cut_off(2)
        await (await nodes.client(3)).create_topic("meanwhile", 1)
        for index, leader in leaders.items():
            if leader != 2:
                assert (await (await nodes.client(leader)).produce("t", batch_of(b"v"), index)).error_code == 0
        await nodes.start(2)
        for index, leader in leaders.items():
            assert await values(nodes, "t", index, leader) == (1 if leader == 2 else 2)
        assert await seen_topic(await nodes.client(2), "meanwhile") == (0, 1)


async def test_while_the_owner_is_away_the_others_serve_and_changes_wait(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t", 3)
        leaders = await nodes.leaders("t")
        await nodes.cut_off(OWNER)
        for index, leader in leaders.items():
            if leader != OWNER:
                assert (await (await nodes.client(leader)).produce("t", batch_of(b"v"), index)).error_code == 0
        client = await nodes.client(3)
        await client.send(created("later"))
        await nodes.start(OWNER)
        (answer,) = (await client.receive()).topics
        assert answer.error_code == 0
        assert await seen_topic(await nodes.client(2), "later") == (0, 1)


async def test_an_owner_that_comes_back_leaves_the_partitions_where_they_are(tmp_path: Path) -> None:
    """The other nodes have them open, so leaders are not chosen anew, as they are when all nodes start."""
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t", 6)
        assert await move(nodes, "t", dict.fromkeys(range(6), 2)) == [0] * 6
        await until(lambda: all(leads(nodes.owner, "t", index, 2) for index in range(6)))
        await nodes.cut_off(OWNER)
        await nodes.start(OWNER)
        assert await nodes.leaders("t") == dict.fromkeys(range(6), 2)
        await until(lambda: all(leads(nodes[2].node, "t", index, 2) for index in range(6)))
        for index in range(6):
            assert (await (await nodes.client(2)).produce("t", batch_of(b"v"), index)).error_code == 0
        nodes.no_errors()


async def test_one_node_becomes_three_and_one_again(tmp_path: Path, start: Start) -> None:
    """`start` uses the same folder each time."""
    path = tmp_path / "data"
    async with start(node_id="1") as one, await one.client() as client:
        await client.create_topic("t", 6)
        for index in range(6):
            assert (await client.produce("t", batch_of(b"a"), index)).error_code == 0
    for round_number in range(2):
        async with several(path) as nodes:
            leaders = await nodes.leaders("t")
            assert sorted(leaders.values()) == [1, 1, 2, 2, 3, 3]
            for index, leader in leaders.items():
                assert await values(nodes, "t", index, leader) == 1 + 2 * round_number
                assert (await (await nodes.client(leader)).produce("t", batch_of(b"b"), index)).error_code == 0
            nodes.no_errors()
        assert not (path / "nodes").exists()
        async with start(node_id="1") as one, await one.client() as client:
            for index in range(6):
                assert (await client.fetch("t", 0, index)).high_watermark == 2 + 2 * round_number
                assert (await client.produce("t", batch_of(b"c"), index)).error_code == 0
            assert " error " not in one.log


async def test_a_start_of_the_same_nodes_leaves_moved_partitions_where_they_are(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t", 6)
        assert await move(nodes, "t", dict.fromkeys(range(6), 2)) == [0] * 6
        await until(lambda: all(leads(nodes[2].node, "t", index, 2) for index in range(6)))
    async with several(tmp_path) as nodes:
        assert set((await nodes.leaders("t")).values()) == {2}
        nodes.no_errors()
    async with several(tmp_path, count=2) as nodes:
        assert sorted((await nodes.leaders("t")).values()) == [1, 1, 1, 2, 2, 2]
        nodes.no_errors()


async def test_a_folder_that_was_copied_here_becomes_a_topic_at_the_start_of_all_nodes(
    tmp_path: Path, start: Start
) -> None:
    """`start` has the folder that it is copied from."""
    async with start(node_id="1") as one, await one.client() as client:
        await client.create_topic("copied", 2)
        assert (await client.produce("copied", batch_of(b"a"), 1)).error_code == 0
    async with several(tmp_path / "nodes") as nodes:
        await (await nodes.client(1)).create_topic("t", 3)
    for index in range(2):
        shutil.copytree(tmp_path / "data" / f"copied-{index}", tmp_path / "nodes" / f"copied-{index}")
    async with several(tmp_path / "nodes") as nodes:
        for node in NODES:
            assert await seen_topic(await nodes.client(node), "copied") == (0, 2)
        (leader,) = set((await nodes.leaders("copied")).values())
        assert await values(nodes, "copied", 1, leader) == 1
        nodes.no_errors()


async def test_a_folder_of_a_removed_topic_is_not_taken_for_a_copied_one(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    async with several(tmp_path / "nodes") as nodes:
        await (await nodes.client(1)).create_topic("t", 3)
        for index, leader in (await nodes.leaders("t")).items():
            assert (await (await nodes.client(leader)).produce("t", batch_of(b"a"), index)).error_code == 0
            shutil.copytree(tmp_path / "nodes" / f"t-{index}", copy / f"t-{index}")
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        assert (await (await nodes.client(2)).ask(gone, 6)).responses[0].error_code == 0
    for folder in copy.iterdir():  # as if a node had ended before it heard of the removal
        shutil.copytree(folder, tmp_path / "nodes" / folder.name)
    async with several(tmp_path / "nodes") as nodes:
        assert (await seen_topic(await nodes.client(2), "t"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not [folder for folder in (tmp_path / "nodes").glob("t-*") if not folder.name.endswith("-delete")]
        nodes.no_errors()


async def test_one_process_does_not_take_a_folder_whose_nodes_run(tmp_path: Path) -> None:
    async with several(tmp_path, count=2):
        # A process does not see its own lock, which the supervisor has; it sees the locks of the nodes.
        with pytest.raises(StorageError, match="in use by its node"):
            Claim.take(Io(), str(tmp_path), node_id=OWNER, cluster_id=None)


async def test_a_change_waits_for_a_node_that_stands_still_and_nothing_else_does(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t", 3)
        leaders = await nodes.leaders("t")
        async with nodes[3].node.topics.changes:  # node 3 applies nothing meanwhile
            asked = await nodes.client(2)
            await asked.send(created("later"))
            await until(lambda: "later" in nodes[2].node.metadata.topics)
            for index, leader in leaders.items():
                other = await nodes[leader].client()
                assert (await other.produce("t", batch_of(b"v"), index)).error_code == 0
            await until(lambda: "metadata.behind" in nodes[1].log)
            assert "later" not in nodes[3].node.metadata.topics
            with trio.move_on_after(0.05) as waited:
                await asked.stream.wait_send_all_might_not_block()
                await trio.lowlevel.wait_readable(asked.stream.socket)
            assert waited.cancelled_caught, "there is no answer yet"
            looks = await nodes[1].client()
            with trio.fail_after(30):  # requests that change nothing do not wait
                await looks.ask(ListPartitionReassignmentsRequest())
                assert (await seen_topic(looks, "t"))[0] == 0
        (answer,) = (await asked.receive()).topics
        assert answer.error_code == 0
        assert "later" in nodes[3].node.metadata.topics


async def test_a_change_that_waits_for_a_node_holds_up_nobody_who_looks_for_a_coordinator(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        asked = FindCoordinatorRequest(coordinator_keys=["g"])
        assert (await (await nodes.client(1)).ask(asked)).coordinators[0].error_code == 0, "its topic is there now"
        topics, goes_on = nodes[3].node.topics, trio.Event()
        assert isinstance(topics, FollowedTopics)
        follow = topics.follow

        async def follow_later(records: Sequence[Message], timestamp: int) -> None:
            await goes_on.wait()
            await follow(records, timestamp)

        topics.follow = follow_later  # type: ignore[method-assign]
        changing = await nodes.client(2)
        await changing.send(created("later"))
        await until(lambda: "later" in nodes.owner.metadata.topics)
        assert (await (await nodes.client(1)).ask(asked)).coordinators[0].error_code == 0
        assert "later" not in nodes[3].node.metadata.topics
        goes_on.set()
        assert (await changing.receive()).topics[0].error_code == 0


@pytest.mark.parametrize("asked", NODES)
async def test_each_node_has_settings_of_its_own_that_any_node_may_change(tmp_path: Path, asked: int) -> None:
    async with several(tmp_path) as nodes:
        for node in NODES:
            set_to = AlterConfigsResource(BROKER, str(node), [AlterableConfig("log.cleaner.threads", 0, str(node + 1))])
            answer = await (await nodes.client(asked)).ask(IncrementalAlterConfigsRequest(resources=[set_to]))
            assert answer.responses[0].error_code == 0
        for node in NODES:
            assert nodes[node].node.config["log.cleaner.threads"] == node + 1
        set_to = AlterConfigsResource(BROKER, "4", [AlterableConfig("log.cleaner.threads", 0, "2")])
        answer = await (await nodes.client(asked)).ask(IncrementalAlterConfigsRequest(resources=[set_to]))
        assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST


async def test_a_folder_is_chosen_again_where_the_partition_is_not_yet(tmp_path: Path) -> None:
    """Tools ask this after a reassignment that names folders, and again until the partition has arrived."""
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t", 3)
        topic = AlterReplicaLogDirTopic("t", [0, 1, 2, 3])
        asked = AlterReplicaLogDirsRequest([AlterReplicaLogDir(str(tmp_path), [topic])])
        for node in NODES:
            (told,) = (await (await nodes.client(node)).ask(asked)).results
            codes = {part.partition_index: part.error_code for part in told.partitions}
            for index, leader in (await nodes.leaders("t")).items():
                assert codes[index] == (0 if leader == node else ErrorCode.REPLICA_NOT_AVAILABLE)
            assert codes[3] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_snapshot_waits_until_no_node_has_anything_of_a_removed_topic(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        take = nodes.owner.metadata_snapshots.take
        await (await nodes.client(1)).create_topic("t", 6)
        await until(lambda: nodes.owner.followers.are_clean)
        assert await take() is not None
        await nodes.cut_off(3)
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        assert (await (await nodes.client(2)).ask(gone, 6)).responses[0].error_code == 0
        assert await take() is None, "node 3 has its folders still"
        assert list(tmp_path.glob("t-*")) != []
        await nodes.start(3)
        assert not [folder for folder in tmp_path.glob("t-*") if not folder.name.endswith("-delete")]
        await until(lambda: nodes.owner.followers.are_clean)
        assert await take() is not None
    async with several(tmp_path) as nodes:
        assert await seen_topic(await nodes.client(2), "t") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)


async def test_nodes_begin_with_the_owners_snapshot(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        for number in range(20):
            await (await nodes.client(1)).create_topic(f"t{number}", 2)
        await until(lambda: nodes.owner.followers.are_clean)
        for _ in range(3):
            assert await nodes.owner.metadata_snapshots.take() is not None
            await (await nodes.client(2)).create_topic(f"more{nodes.owner.metadata.log.log_end_offset}")
        assert nodes.owner.metadata.log.log_start_offset > 0
        await nodes.stop(3)
        await nodes.start(3)
        for number in range(20):
            assert await seen_topic(await nodes.client(3), f"t{number}") == (0, 2)
        nodes.no_errors()


async def test_who_asks_the_wrong_node_is_told_the_right_one(tmp_path: Path) -> None:
    """KIP-951: the answer has the leader with its epoch, and its address."""
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t", 3)
        leaders = await nodes.leaders("t")
        index = next(index for index, leader in leaders.items() if leader == 3)
        wrong = await nodes.client(2)
        produced = await wrong.ask(produce_request("t", batch_of(b"v"), index), 12)
        fetched = await wrong.ask(fetch_by_id(nodes.owner.metadata.topics["t"].topic_id, index), 17)
        for answer, part in (
            (produced, produced.responses[0].partition_responses[0]),
            (fetched, fetched.responses[0].partitions[0]),
        ):
            assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (3, 0)
            assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(3, nodes[3].port)]
        right = await (await nodes.client(3)).ask(produce_request("t", batch_of(b"v"), index), 12)
        assert right.node_endpoints == []


@pytest.mark.parametrize("version", [4, 11, 12])
async def test_who_asks_the_wrong_node_in_an_old_version_is_told_so(tmp_path: Path, version: int) -> None:
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t", 3)
        index = next(index for index, leader in (await nodes.leaders("t")).items() if leader == 3)
        wrong = await nodes.client(2)
        told = (await wrong.ask(fetch_request("t", partition=index), version)).responses[0].partitions[0]
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert told.current_leader.leader_id == (3 if version >= 12 else -1)
        told = (await wrong.ask(produce_request("t", batch_of(b"v"), index), 3)).responses[0].partition_responses[0]
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_what_a_node_could_not_take_it_takes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_manager, "_MISSING_SECONDS", 0.01)
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t", 3)
        leaders = await nodes.leaders("t")
        index = next(index for index, leader in leaders.items() if leader == 1)
        assert (await (await nodes.client(1)).produce("t", batch_of(b"v"), index)).error_code == 0
        data_dir = nodes[2].node.data_dir
        refused = 0

        async def no_room(*_: object) -> None:
            nonlocal refused
            refused += 1
            monkeypatch.setattr(data_dir, "take", taken if refused > 2 else no_room)
            raise StorageError("no room on the disk")

        taken = data_dir.take
        monkeypatch.setattr(data_dir, "take", no_room)
        assert await move(nodes, "t", {index: 2}) == [0]
        await until(lambda: leads(nodes[2].node, "t", index, 2) and ("t", index) in nodes[2].node.vnodes)
        assert refused == 3
        assert await values(nodes, "t", index, 2) == 1
        assert (await (await nodes.client(2)).produce("t", batch_of(b"v"), index)).base_offset == 1


async def test_a_topic_that_is_deleted_while_it_moves_leaves_nothing(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t", 6)
        await nodes.cut_off(3)  # requests to node 3 have to wait
        leaders = await nodes.leaders("t")
        assert await move(nodes, "t", {index: 1 + leader % 3 for index, leader in leaders.items()}) == [0] * 6
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
        assert (await (await nodes.client(2)).ask(gone, 6)).responses[0].error_code == 0
        await nodes.start(3)
        assert nodes.owner.metadata.moves == {}
        for node in NODES:
            assert not [key for key in nodes[node].node.vnodes if key[0] == "t"]
        assert not [folder for folder in tmp_path.glob("t-*") if not folder.name.endswith("-delete")]
        await (await nodes.client(3)).create_topic("t", 6)
        for index, leader in (await nodes.leaders("t")).items():
            assert (await (await nodes.client(leader)).produce("t", batch_of(b"v"), index)).base_offset == 0


async def test_a_move_waits_for_the_node_that_has_the_records_and_can_be_given_up(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t", 3)
        index = next(index for index, leader in (await nodes.leaders("t")).items() if leader == 3)
        assert (await (await nodes.client(3)).produce("t", batch_of(b"v"), index)).error_code == 0
        await nodes.cut_off(3)
        assert await move(nodes, "t", {index: 2}) == [0]
        listed = await (await nodes.client(2)).ask(ListPartitionReassignmentsRequest())
        ((part,),) = [topic.partitions for topic in listed.topics]
        assert (part.partition_index, part.adding_replicas, part.removing_replicas) == (index, [2], [3])
        assert (await nodes.leaders("t"))[index] == -1
        assert await move(nodes, "t", {index: None}, by=2) == [0]
        await nodes.start(3)
        await until(lambda: all(leads(each.node, "t", index, 3) for each in nodes.running.values()))
        assert await values(nodes, "t", index, 3) == 1


async def test_the_owner_goes_on_with_the_moves_that_it_finds(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t", 3)
        index = next(index for index, leader in (await nodes.leaders("t")).items() if leader == 3)
        assert (await (await nodes.client(3)).produce("t", batch_of(b"v"), index)).error_code == 0
        await nodes.cut_off(3)
        assert await move(nodes, "t", {index: 2}) == [0]
        await nodes.cut_off(OWNER)
        await nodes.start(OWNER)
        await nodes.start(3)
        await until(lambda: all(leads(each.node, "t", index, 2) for each in nodes.running.values()))
        assert await values(nodes, "t", index, 2) == 1


async def test_how_far_each_node_is_can_be_asked_anywhere(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t", 3)
        for node in NODES:
            asked = DescribeQuorumRequest([TopicData("__cluster_metadata", [QuorumPartition(0)])])
            (part,) = (await (await nodes.client(node)).ask(asked)).topics[0].partitions
            assert (part.leader_id, [each.replica_id for each in part.current_voters]) == (1, [1])
            assert [each.replica_id for each in part.observers] == [2, 3]
            end = part.current_voters[0].log_end_offset
            assert {each.log_end_offset for each in part.observers} == {end}, "the creation was applied by all"


async def test_many_changes_that_wait_for_the_owner_look_for_it_once(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        clients = [await nodes[2].client() for _ in range(40)]
        await nodes.cut_off(OWNER)
        looks = 0
        channels = nodes[2].node.together.channels  # type: ignore[union-attr]
        opened = channels.open

        async def counted(node: int) -> Channel:
            nonlocal looks
            looks += 1
            return await opened(node)

        channels.open = counted  # type: ignore[method-assign]
        for number, client in enumerate(clients):
            await client.send(created(f"t{number}"))
        await until(lambda: 'effect="changes wait"' in nodes[2].log)
        assert looks < 40 + 30, "each looked once at most, and then one for all"
        await nodes.start(OWNER)
        for client in clients:
            assert (await client.receive()).topics[0].error_code == 0


async def test_rights_hold_at_all_nodes_at_once_and_are_the_clients_own(tmp_path: Path) -> None:
    """The owner checks the rights of the client, not of the node that hands the request on."""
    settings = several(tmp_path, authorizer_class_name=STANDARD, allow_everyone_if_no_acl_found="true")
    async with settings as nodes:
        await (await nodes.client(1)).create_topic("secret", 3)
        leaders = await nodes.leaders("secret")
        for_other = [
            AclCreation(ResourceType.TOPIC, "secret", 3, "User:other", "*", Operation.WRITE, Permission.ALLOW),
            AclCreation(ResourceType.TOPIC, "mine", 3, "User:other", "*", Operation.CREATE, Permission.ALLOW),
            AclCreation(ResourceType.CLUSTER, CLUSTER_NAME, 3, "User:other", "*", Operation.CREATE, Permission.ALLOW),
        ]
        answer = await (await nodes.client(3)).ask(CreateAclsRequest(for_other))
        assert [each.error_code for each in answer.results] == [0, 0, 0]
        for index, leader in leaders.items():
            code = (await (await nodes.client(leader)).produce("secret", batch_of(b"v"), index)).error_code
            assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for node in NODES:
            asked = await (await nodes.client(node)).ask(created("mine"))
            assert asked.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            asked = await (await nodes.client(node)).ask(created(f"free{node}"))
            assert asked.topics[0].error_code == 0


async def test_limits_of_clients_do_not_keep_nodes_apart(tmp_path: Path) -> None:
    more = {"max_connections_per_ip": "1", "max_connection_creation_rate": "1"}
    async with several(tmp_path, **more) as nodes:  # type: ignore[arg-type]
        client = await nodes.client(2)
        await client.create_topic("t", 3)
        second = await nodes[2].client()
        assert await second.is_closed()


async def test_a_stranger_at_the_nodes_listener_is_not_served(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        port = nodes.owner.together.bound[0].sockets[0].getsockname()[1]  # type: ignore[union-attr]
        for request, version in (
            (MetadataRequest(topics=[]), 12),
            (EnvelopeRequest(b"", b"", b""), 0),
            (NodeMetricsRequest(), 0),
            (FetchSnapshotRequest(), 0),
        ):
            client = await connect(port)
            await client.send(request, version)
            assert await client.is_closed()
        client = await connect(port)
        told = await client.ask(SaslHandshakeRequest("PLAIN"), 1)
        assert told.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        client = await connect(port)
        assert (await client.ask(SaslHandshakeRequest("BARNABAS-NODE"), 1)).error_code == 0
        with pytest.raises(Unreachable, match="refuses the login"):
            await Channel.open(port, lambda: "another secret", "stranger")
        await (await nodes.client(2)).create_topic("t", 3)
