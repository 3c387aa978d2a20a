"""Several nodes are one broker: what is asked of any of them holds at all of them, and each serves what it leads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.broker.between.followed_topics import FollowedTopics
from barnabas.broker.metadata import topic_manager
from barnabas.broker.node import Node
from barnabas.broker.tests.client import batch_of, produce_request
from barnabas.broker.tests.conftest import Start, until
from barnabas.broker.tests.several import OWNER, Several, several
from barnabas.storage.claim import Claim
from barnabas.storage.errors import StorageError
from barnabas.storage.io import Io
from barnabas.wire.errors import ErrorCode
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
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.envelope import EnvelopeRequest
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.types import Message

TOPIC, BROKER = 2, 4
NODES = (1, 2, 3)


def created(name: str, count: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=count, replication_factor=1)])


async def move(nodes: Several, topic: str, to: dict[int, int | None], by: int = OWNER) -> list[int]:
    """Ask a node to move partitions; gives what it says of each."""
    parts = [ReassignablePartition(index, None if node is None else [node]) for index, node in to.items()]
    asked = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(topic, parts)])
    answer = await (await nodes.client(by)).ask(asked)
    return [part.error_code for part in answer.responses[0].partitions]


def leads(node: Node, topic: str, index: int, leader: int) -> bool:
    """Whether a node knows that another one leads a partition."""
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


async def seen_topic(client: Any, name: str) -> Any:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (topic,) = (await client.ask(asked)).topics
    return topic.error_code, len(topic.partitions)


@pytest.mark.parametrize(("asked", "looked"), list(itertools.product(NODES, NODES)))
async def test_what_one_node_has_answered_is_seen_at_any_other(tmp_path: Path, asked: int, looked: int) -> None:
    """The two requests go over two connections to two nodes, one after the other."""
    async with several(tmp_path) as nodes:
        here, there = await nodes.client(asked), await nodes.client(looked)
        for round_number in range(3):
            name = f"t{round_number}"
            await here.create_topic(name, 2)
            assert await seen_topic(there, name) == (0, 2)
            grown = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=5, assignments=None)])
            assert (await here.ask(grown)).results[0].error_code == 0
            assert await seen_topic(there, name) == (0, 5)
            set_to = AlterConfigsResource(TOPIC, name, [AlterableConfig("retention.ms", 0, "1234")])
            answer = await here.ask(IncrementalAlterConfigsRequest(resources=[set_to]))
            assert answer.responses[0].error_code == 0
            described = DescribeConfigsRequest(resources=[DescribeConfigsResource(TOPIC, name, ["retention.ms"])])
            (found,) = (await there.ask(described)).results
            assert [each.value for each in found.configs] == ["1234"]
            gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
            assert (await here.ask(gone, 6)).responses[0].error_code == 0
            assert await seen_topic(there, name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
        nodes.no_errors()


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
        client = await nodes[2].client()
        await client.send(EnvelopeRequest(b"", b"", b""), 0)
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
    """The others serve on meanwhile, and what was acknowledged is there."""
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
    """The others have them open: what leads most does not share with who leads less, as it does at a start of all."""
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
    """`start` has the same folder each time."""
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


async def test_one_process_does_not_take_a_folder_whose_nodes_run(tmp_path: Path) -> None:
    async with several(tmp_path, count=2):
        # The supervisor's own lock is not seen in its process: the nodes' are.
        with pytest.raises(StorageError, match="in use by its node"):
            Claim.take(Io(), str(tmp_path), node_id=OWNER, cluster_id=None)


async def test_a_change_waits_for_a_node_that_stands_still_and_nothing_else_does(tmp_path: Path) -> None:
    async with several(tmp_path) as nodes:
        await (await nodes.client(1)).create_topic("t", 3)
        leaders = await nodes.leaders("t")
        async with nodes[3].node.topics.changes:  # it applies nothing
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
    """Tools ask so after a reassignment that names folders, and again until the partition has come."""
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
    """KIP-951: with its epoch, and its address."""
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
        await nodes.cut_off(3)  # what comes from there has to wait
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
