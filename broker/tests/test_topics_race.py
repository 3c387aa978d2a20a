"""A topic is seen by others only when all of it is there."""

from __future__ import annotations

from pathlib import Path

import trio

from barnabas.broker.log import EventLog
from barnabas.broker.node import Node
from barnabas.broker.settings.config import BrokerConfig


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
