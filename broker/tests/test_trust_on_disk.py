"""What a restart must not change: the partition of each group, and what remains of damaged metadata and offsets."""

from __future__ import annotations

from pathlib import Path

import trio

from barnabas.broker.tests.client import batch_of
from barnabas.broker.tests.conftest import Start, until
from barnabas.groupcoord.config import GroupConfig
from barnabas.groupcoord.coordinator import GroupCoordinator
from barnabas.groupcoord.log.image import PartitionImage
from barnabas.groupcoord.partitions import group_partition
from barnabas.groupcoord.tests.harness import MemoryStore, TopicList
from barnabas.groupcoord.topics import Topic
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from barnabas.wire.records.offset_commit import OffsetCommitValue


async def commit(client: object, offset: int) -> None:
    await client.ask(FindCoordinatorRequest(key="g"), 3)  # type: ignore[attr-defined]
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = await client.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 8)  # type: ignore[attr-defined]
    assert answer.topics[0].partitions[0].error_code == 0


async def committed(client: object) -> int:
    """Ask until the group's partition is loaded. Returns the committed offset."""
    asked = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
    with trio.fail_after(60):
        while True:
            group = (await client.ask(OffsetFetchRequest(groups=[asked]), 8)).groups[0]  # type: ignore[attr-defined]
            if not group.error_code:
                return int(group.topics[0].partitions[0].committed_offset)
            await trio.sleep(0.01)


async def test_a_changed_partition_count_in_the_configuration_loses_no_offsets(start: Start) -> None:
    async with start(offsets_topic_num_partitions="7") as broker, await broker.client() as client:
        await client.create_topic("t")
        await commit(client, 42)
    async with start(offsets_topic_num_partitions="50") as broker, await broker.client() as client:
        assert await committed(client) == 42


async def test_a_damaged_batch_costs_what_it_says_in_the_metadata_log_and_in_the_offsets(
    start: Start, tmp_path: Path
) -> None:
    async with start(offsets_topic_num_partitions="1") as broker, await broker.client() as client:
        for name in ("first", "t", "last"):
            await client.create_topic(name)
            await client.produce(name, batch_of(b"v"))
        for offset in (1, 2, 3):
            await commit(client, offset)
    for folder in ("__cluster_metadata-0", "__consumer_offsets-0"):
        log = tmp_path / "data" / folder / f"{0:020d}.log"
        data = bytearray(log.read_bytes())
        data[70] ^= 1  # in the first batch, which has no entry in the index
        log.write_bytes(data)
    async with start(offsets_topic_num_partitions="1") as broker, await broker.client() as client:
        assert (await client.produce("last", batch_of(b"w"))).base_offset == 1
        assert "log.damaged topic=__cluster_metadata partition=0" in broker.log
        await until(lambda: "log.damaged topic=__consumer_offsets partition=0" in broker.log)
        assert "partition.offline" not in broker.log
        await committed(client)  # loading is tried again after a while
        await commit(client, 4)
        assert await committed(client) == 4


def test_an_offset_without_a_topic_id_is_not_given_to_a_topic_made_later() -> None:
    """The commits of old clients, which set their own retention, do not name a topic id."""
    topics = TopicList(Topic("t", b"n" * 16, 1, since_ms=1000), Topic("u", b"u" * 16, 1))
    store = MemoryStore()
    coordinator = GroupCoordinator(GroupConfig(), store, lambda: 0.0, topics=topics, wall_ms=lambda: 5000)
    image = PartitionImage()
    image.offsets["g", "t", 0] = OffsetCommitValue(offset=5, commit_timestamp=900)
    image.offsets["g", "u", 0] = OffsetCommitValue(offset=6, commit_timestamp=900)
    partition = group_partition("g", 50)
    coordinator.finish_load(coordinator.begin_load(partition), image)
    asked = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ("t", "u")]
    group = OffsetFetchRequestGroup(group_id="g", topics=asked)
    found = coordinator.fetch_offsets(OffsetFetchRequest(groups=[group]), 8).groups[0]
    assert [topic.partitions[0].committed_offset for topic in found.topics] == [-1, 6]
    assert len(store.log[partition]) == 1, "the tombstone that a crash has taken is written again"
