"""Each change of the metadata reaches the listeners in the same way, as (before, after). A start uses this way, too."""

from __future__ import annotations

import pytest

from barnabas.broker.clock import Clock
from barnabas.broker.metadata.image import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    Leader,
    Listener,
    MetadataImage,
    TopicImage,
)
from barnabas.broker.partitions import Partitions
from barnabas.broker.tests.client import batch_of
from barnabas.broker.tests.conftest import Start
from barnabas.storage.config import LogConfig
from barnabas.storage.tests.memory import MemoryVnode
from barnabas.wire.batch import iter_batches, parse_header
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import TRANSACTIONS_TOPIC
from barnabas.wire.records.cluster_metadata import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from barnabas.wire.types import Message

ID, OTHER_ID = b"i" * 16, b"j" * 16


class Heard(Listener):
    """What a listener is told, as text."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def settings_changed(self) -> None:
        self.said.append("settings")

    def topic_changed(self, before: TopicImage | None, after: TopicImage | None) -> None:
        self.said.append(f"{_shown(before)} -> {_shown(after)}")

    def change_applied(self) -> None:
        self.said.append("applied")


def _shown(topic: TopicImage | None) -> str:
    if topic is None:
        return "-"
    leaders = "".join(f" {index}:{node}/{epoch}" for index, (node, epoch) in topic.partitions.items())
    return topic.name + leaders + "".join(f" {key}={value}" for key, value in topic.configs.items())


def image_with(listener: Listener | None = None) -> MetadataImage:
    image = MetadataImage(1, Clock())
    if listener is not None:
        image.listeners.append(listener)
    return image


def topic(name: str, topic_id: bytes, leader: int = 1) -> list[Message]:
    return [
        TopicRecord(name, topic_id),
        PartitionRecord(0, topic_id, [leader], [leader], leader=leader, leader_epoch=0, partition_epoch=0),
    ]


def setting(kind: int, name: str, value: str | None) -> Message:
    return ConfigRecord(kind, name, "retention.ms", value)


def test_each_change_is_told_once_with_what_was_and_what_is() -> None:
    heard = Heard()
    image = image_with(heard)
    image.change([*topic("t", ID), setting(RESOURCE_TOPIC, "t", "7")])
    image.change([PartitionRecord(1, ID, [1], [1], leader=1, leader_epoch=0, partition_epoch=0)])
    image.change([PartitionChangeRecord(1, ID, isr=[1]), PartitionChangeRecord(0, ID, leader=2)])
    image.change([setting(RESOURCE_BROKER, "", "9"), setting(RESOURCE_TOPIC, "t", None)])
    image.change([setting(RESOURCE_TOPIC, "never", "1"), RemoveTopicRecord(OTHER_ID)])
    image.change(topic("t", OTHER_ID))
    image.change([RemoveTopicRecord(OTHER_ID)])
    assert heard.said == [
        *("- -> t 0:1/0 retention.ms=7", "applied"),
        *("t 0:1/0 retention.ms=7 -> t 0:1/0 1:1/0 retention.ms=7", "applied"),
        *("t 0:1/0 1:1/0 retention.ms=7 -> t 0:2/1 1:1/0 retention.ms=7", "applied"),
        *("settings", "t 0:2/1 1:1/0 retention.ms=7 -> t 0:2/1 1:1/0", "applied"),
        "applied",
        *("t 0:2/1 1:1/0 -> -", "- -> t 0:1/0", "applied"),  # created again under its name
        *("t 0:1/0 -> -", "applied"),
    ]


def test_a_start_tells_of_all_that_there_is_once_and_of_nothing_that_is_gone() -> None:
    log = MemoryVnode(METADATA_TOPIC, 0, METADATA_TOPIC_ID, LogConfig())
    first = image_with()
    first.load(log)
    for change in (topic("gone", ID), topic("t", OTHER_ID), [RemoveTopicRecord(ID)]):
        first.write(first.batch_of(change))
        first.change(change)
    last = [setting(RESOURCE_TOPIC, "t", "7"), PartitionChangeRecord(0, OTHER_ID, leader=3)]
    first.write(first.batch_of(last))
    log.flush()
    heard = Heard()
    image_with(heard).load(log)
    assert heard.said == ["settings", "- -> t 0:3/1 retention.ms=7", "applied"]


def test_a_snapshot_keeps_who_leads() -> None:
    image = image_with()
    image.change([*topic("t", ID, leader=2), PartitionChangeRecord(0, ID, leader=3)])
    again = image_with()
    again.change(list(image.records()))
    assert again.topics["t"].partitions == {0: Leader(3, 1)}


def test_the_door_tells_not_there_from_not_led_here_and_from_no_log() -> None:
    image = image_with()
    image.change(topic("here", ID))
    image.change(topic("elsewhere", OTHER_ID, leader=2))
    vnode = MemoryVnode("here", 0, ID, LogConfig())
    vnodes = {("here", 0): vnode}
    partitions = Partitions(image, vnodes)
    assert partitions.led("here", 0) is vnode
    assert [partitions.exists(name, 0) for name in ("here", "elsewhere", "nowhere")] == [True, True, False]
    for name, index, code in (
        ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("here", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (METADATA_TOPIC, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("elsewhere", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        with pytest.raises(KafkaError) as raised:
            partitions.led(name, index)
        assert raised.value.code == code
        assert partitions.get(name, index) is None
    vnodes.clear()
    with pytest.raises(KafkaError) as raised:
        partitions.led("here", 0)
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_the_epoch_of_a_new_leader_reaches_what_is_appended(start: Start) -> None:
    """A start reads it from the metadata log, and a running broker gets it with the change."""
    async with start() as running, await running.client() as client:
        await client.create_topic("t")
        await client.produce("t", batch_of(b"a"))
        topics = running.node.topics
        topic_id = running.node.metadata.topics["t"].topic_id
        async with topics.changes:
            await topics.commit([PartitionChangeRecord(0, topic_id, leader=1)])
        await client.produce("t", batch_of(b"b"))
        assert running.node.vnodes["t", 0].leader_epoch == 1
    async with start() as running, await running.client() as client:
        await client.produce("t", batch_of(b"c"))
        found = await client.fetch("t")
        epochs = [parse_header(view).partition_leader_epoch for _, view in iter_batches(bytes(found.records))]
        assert epochs == [0, 1, 1]


async def test_a_coordinator_has_the_epoch_of_its_partitions_leader(start: Start) -> None:
    """Markers carry it, so that markers of a replaced coordinator are refused."""
    async with start() as running:
        node = running.node
        await node.transactions.ready()
        topic_id = node.metadata.topics[TRANSACTIONS_TOPIC].topic_id
        async with node.topics.changes:
            await node.topics.commit([PartitionChangeRecord(7, topic_id, leader=1)])
    async with start() as running:
        shards = running.node.transactions.coordinator.shards.by_partition
        assert [shards[index].coordinator_epoch for index in (6, 7)] == [0, 1]
