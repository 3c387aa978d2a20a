"""Concurrent changes of topics: a topic is visible once all of it exists, and no request waits for long."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import trio

from barnabas.broker import workers
from barnabas.broker.clock import Clock
from barnabas.broker.log import EventLog
from barnabas.broker.metadata import topic_manager
from barnabas.broker.metadata.image import Leader, MetadataImage, Move, TopicImage
from barnabas.broker.node import Node
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.tests.conftest import Start
from barnabas.broker.tests.turns import counted_turns
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.records.cluster_metadata import RemoveTopicRecord
from barnabas.wire.types import Message


async def test_a_topic_is_not_seen_before_its_partitions_are(tmp_path: Path) -> None:
    config = BrokerConfig({"log.dir": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    node = Node(config, EventLog(level="error"))
    seen: list[tuple[int, int]] = []
    done = trio.Event()

    async def look() -> None:
        while True:
            over = done.is_set()
            topic = node.metadata.topics.get("many")
            if topic is not None:
                made = sum((("many", p) in node.vnodes) for p in range(200))
                seen.append((len(topic.partitions), made))
            if over:
                return
            await trio.lowlevel.checkpoint()

    async def create() -> None:
        await node.topics.create("many", 200)
        done.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        async with trio.open_nursery() as both:
            both.start_soon(look)
            both.start_soon(create)
        node.stop()
    assert seen
    assert set(seen) == {(200, 200)}


async def test_groups_are_served_by_whoever_asks_first_and_second(tmp_path: Path) -> None:
    config = BrokerConfig({"log.dir": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    node = Node(config, EventLog(level="error"))
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        async with trio.open_nursery() as all_at_once:
            for _ in range(5):
                all_at_once.start_soon(node.groups.ready)
        shards = node.groups.coordinator.shards.by_partition
        assert len(shards) == 50
        assert all(shard.is_loaded for shard in shards.values())
        node.stop()


async def test_while_a_topic_is_taken_away_others_are_changed_and_its_name_waits(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then, the topic's remains are known as removed: no snapshot that forgets them is taken."""
    others_are_done, deleting = trio.Event(), list[trio.lowlevel.Task]()

    class GivesWay(workers.Yielder):
        """Continues after a partition once the other tasks are done, because the disk decides how long that takes."""

        async def __call__(self) -> None:
            if trio.lowlevel.current_task() in deleting:
                await others_are_done.wait()

    monkeypatch.setattr(topic_manager, "Yielder", GivesWay)
    async with start() as running:
        topics, vnodes = running.node.topics, running.node.vnodes
        old = await topics.create("t", 60)
        done: list[str] = []
        snapshots: list[object] = []

        async def delete() -> None:
            deleting.append(trio.lowlevel.current_task())
            await topics.delete("t")
            assert not [key for key in vnodes if key[0] == "t"]
            done.append("deleted")

        async def create(name: str, count: int) -> None:
            while "t" in running.node.metadata.topics:
                await trio.lowlevel.checkpoint()
            assert ("t", 59) in vnodes
            made = await topics.create(name, count)
            done.append(name)
            assert all(vnodes[name, index].topic_id == made.topic_id for index in range(count))

        async def snapshot() -> None:
            while "t" in running.node.metadata.topics:
                await trio.lowlevel.checkpoint()
            snapshots.append(await running.node.metadata_snapshots.take())

        async def others() -> None:
            async with trio.open_nursery() as both:
                both.start_soon(create, "other", 1)
                both.start_soon(snapshot)
            others_are_done.set()

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(delete)
                nursery.start_soon(create, "t", 3)
                nursery.start_soon(others)
        assert done == ["other", "deleted", "t"]
        assert snapshots == [None]
        assert running.node.metadata.topics["t"].topic_id != old.topic_id
        assert await running.node.metadata_snapshots.take() is not None


LARGE = 3000


def records_of(name: str, topic_id: bytes, count: int = 1) -> list[Message]:
    """The records that create a topic led by node 1."""
    topic = TopicImage(name, topic_id, dict.fromkeys(range(count), Leader(1, 0)))
    return MetadataImage(1, Clock()).topic_records(topic)


ASKED = {
    "Metadata of a large topic": (MetadataRequest([MetadataRequestTopic(name="large")], False), 5),
    "DescribeLogDirs": (DescribeLogDirsRequest(None), LARGE),
    "CreateTopics, to be checked": (
        CreateTopicsRequest([CreatableTopic(f"name_{n}", 1, 1, [], []) for n in range(80)], 1000, True),
        80,
    ),
    "AlterConfigs of a large topic": (
        IncrementalAlterConfigsRequest(
            [AlterConfigsResource(2, "large", [AlterableConfig("retention.ms", 0, "9")])], False
        ),
        LARGE,
    ),
    "AlterConfigs of the broker": (
        IncrementalAlterConfigsRequest(
            [AlterConfigsResource(4, "", [AlterableConfig("log.retention.ms", 0, "9")])], False
        ),
        LARGE,
    ),
}


@pytest.mark.parametrize("asked", ASKED)
async def test_others_have_their_turn_while_much_is_gone_through(
    start: Start, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    request, pieces = ASKED[asked]
    async with start() as running, await running.client() as client:
        topics = running.node.topics
        async with topics.changes:  # without logs, whose creation takes long
            await topics.commit(records_of("large", b"l" * 16, LARGE))
        monkeypatch.setattr(workers, "HOLD_SECONDS", -1.0)
        async with counted_turns() as turns:
            await client.ask(request)
    assert turns.count >= pieces


async def test_others_have_their_turn_while_many_moves_are_listed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start() as running, await running.client() as client:
        topics, metadata = running.node.topics, running.node.metadata
        async with topics.changes:
            await topics.commit(records_of("large", b"l" * 16, LARGE))
        metadata.moves.update({(b"l" * 16, index): Move(1, 2) for index in range(LARGE)})
        monkeypatch.setattr(workers, "HOLD_SECONDS", -1.0)
        async with counted_turns() as turns:
            (found,) = (await client.ask(ListPartitionReassignmentsRequest())).topics
        metadata.moves.clear()
    assert [part.partition_index for part in found.partitions] == list(range(LARGE))
    assert turns.count >= LARGE


async def test_topics_may_come_and_go_while_a_start_compares_folders(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other nodes ask for changes while the owner of the metadata starts."""
    async with start() as running:
        topics = running.node.topics
        for number in range(30):
            await topics.create(f"old-{number}", 1)
        monkeypatch.setattr(workers, "HOLD_SECONDS", -1.0)

        async def change() -> None:
            for number in range(30):
                await topics.delete(f"old-{number}")
                await topics.create(f"new-{number}", 1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            for _ in range(5):
                await topics.reconcile()
        names = {f"new-{number}" for number in range(30)}
        assert names <= set(running.node.metadata.topics)
        assert {name for name, _ in running.node.vnodes if name.startswith(("old", "new"))} == names
    folders = {
        path.name for path in (tmp_path / "data").iterdir() if path.is_dir() and not path.name.endswith("delete")
    }
    assert folders >= {f"{name}-0" for name in names}
    assert not any(name.startswith("old") for name in folders)


def test_a_name_is_compared_with_those_that_are_like_it_only() -> None:
    """It is not compared with all topics: names that differ only in dots and underscores are looked up together."""
    image = MetadataImage(1, Clock())
    for number, name in enumerate(("a.b", "a_b", "a_c", "plain")):
        image.change(records_of(name, bytes([number]) * 16))
    assert image.metric_names == {"a_b": {"a.b", "a_b"}, "a_c": {"a_c"}, "plain": {"plain"}}
    image.change([RemoveTopicRecord(b"\0" * 16), RemoveTopicRecord(b"\2" * 16)])
    assert image.metric_names == {"a_b": {"a_b"}, "plain": {"plain"}}
    image.change(records_of("a_b", b"n" * 16))  # created again
    image.change([RemoveTopicRecord(b"n" * 16)])
    assert image.metric_names == {"plain": {"plain"}}


async def test_a_kill_while_a_topic_is_taken_away_leaves_none_of_it(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of its folders are renamed and others are not; the metadata log says that it is removed."""
    monkeypatch.setattr(workers, "HOLD_SECONDS", -1.0)
    count, killed = 40, tmp_path / "killed"
    async with start() as running, trio.open_nursery() as nursery:
        vnodes = running.node.vnodes
        await running.node.topics.create("t", count)
        nursery.start_soon(running.node.topics.delete, "t")
        while sum(key[0] == "t" for key in vnodes) > count // 2:
            await trio.lowlevel.checkpoint()
        # Only the thread that deletes renamed folders runs meanwhile.
        shutil.copytree(tmp_path / "data", killed, ignore=shutil.ignore_patterns("*-delete"))
    assert 0 < len(list(killed.glob("t-*"))) < count
    config = BrokerConfig({"log.dir": str(killed), "listeners": "PLAINTEXT://127.0.0.1:0"})
    node = Node(config, EventLog(level="error"))
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        assert "t" not in node.metadata.topics
        assert not [key for key in node.vnodes if key[0] == "t"]
        again = await node.topics.create("t", count)
        assert all(node.vnodes["t", index].topic_id == again.topic_id for index in range(count))
        node.stop()
