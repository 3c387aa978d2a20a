"""The power fails at any point in the life of a broker: the next start has everything that clients were told.

This covers metadata, quotas, committed offsets and groups, on the recorded disk of `storage.tests.power`. A whole
broker opens each state, and a client asks it. A failure names its seed and state.
"""

from __future__ import annotations

import io
import random
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.broker.log import EventLog
from barnabas.broker.node import Node
from barnabas.broker.settings import quotas
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.tests.client import Client, batch_of, connect
from barnabas.storage.io import Io
from barnabas.storage.tests.power import Disk, survivor
from barnabas.wire.batch import iter_batches, iter_records
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest
from barnabas.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

TOPIC, RATE = 2, "consumer_byte_rate"
KINDS = ["produce"] * 3 + ["commit"] * 2 + ["config", "grow", "delete", "group", "id", "quota"]
NAMES = ["a", "b", "c"]
GROUPS = ["g", "h"]
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "log.segment.bytes": "3000",
    "offsets.topic.segment.bytes": "2000",
    "log.index.interval.bytes": "300",
    "metadata.log.max.record.bytes.between.snapshots": "1500",
}


@asynccontextmanager
async def broker(path: Path, calls: Io) -> AsyncIterator[Client]:
    """A broker on a data directory, and a client of it. The broker does not stop cleanly."""
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dir": str(path), **SETTINGS}
    node = Node(BrokerConfig(properties), EventLog(io.StringIO()), io=calls)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(60):
            await nursery.start(node.run)
        client = await connect(node.bound[0].port)
        try:
            await ready(client)
            yield client
        finally:
            await client.stream.aclose()
            nursery.cancel_scope.cancel()


async def ready(client: Client) -> None:
    """Wait until all groups are loaded."""
    for group in GROUPS:
        with trio.fail_after(60):
            while (await client.ask(FindCoordinatorRequest(key=group), 3)).error_code:
                await trio.lowlevel.checkpoint()
            while await committed(client, group) is None:
                await trio.lowlevel.checkpoint()


async def committed(client: Client, group: str) -> dict[str, int] | None:
    """Offsets of the first partitions; None while the group is not loaded."""
    wanted = [OffsetFetchRequestTopics(name, partition_indexes=[0]) for name in NAMES]
    (answer,) = (await client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=wanted)]), 9)).groups
    if answer.error_code:
        return None
    found = {topic.name: topic.partitions[0].committed_offset for topic in answer.topics}
    return {name: offset for name, offset in found.items() if offset >= 0}


class Promises:
    """The values that clients were told, or had asked for when the power failed. All values that may hold are kept."""

    def __init__(self) -> None:
        self.may: dict[tuple[str, str], set[Any]] = defaultdict(lambda: {None})
        self.producer_id = -1

    def see(self, what: str, key: tuple[str, str], value: Any) -> None:
        """Note a value that was "asked" for, so it may hold, or that a client was "told", so it must hold."""
        if what == "asked":
            self.may[key] = {*self.may[key], value}
        elif what == "told":
            self.may[key] = {value}
        else:
            self.producer_id = max(self.producer_id, value)


class Life:
    """A client's life. Each step is noted in the journal before its request and after its answer."""

    def __init__(self, disk: Disk, seed: int) -> None:
        self.disk = disk
        self.pick = random.Random(seed)
        self.topics: dict[str, tuple[int, int]] = {}  # name -> (which topic of that name, partitions)
        self.made = 0
        self.ends: dict[str, int] = {}

    async def change(self, key: tuple[str, str], value: Any, asked: Any) -> Any:
        self.disk.mark(("asked", key, value))
        answer = await asked
        self.disk.mark(("told", key, value))
        return answer

    async def step(self, client: Client) -> None:
        name, group = self.pick.choice(NAMES), self.pick.choice(GROUPS)
        topic = self.topics.get(name)
        if topic is None:
            self.made += 1
            self.topics[name] = self.made, 1
            self.ends[name] = 0
            configs = {"retention_ms": str(1000 + self.made)}
            await self.change(("topic", name), (1, f"{1000 + self.made}"), client.create_topic(name, 1, **configs))
            self.disk.mark(("told", ("end", name), 0))
            return
        number, partitions = topic
        kind = self.pick.choice(
            ["produce", "produce", "produce", "commit", "commit", "config", "grow", "delete", "group", "id"]
        )
        if kind == "produce":
            end = self.ends[name] + 1
            self.ends[name] = end
            await self.change(("end", name), end, client.produce(name, batch_of(f"{number} {end - 1}".encode())))
        elif kind == "commit":
            offset = self.pick.randint(0, 10**6)
            part = OffsetCommitRequestPartition(committed_offset=offset)
            asked = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(name, partitions=[part])])
            await self.change((f"offset of {group}", name), offset, client.ask(asked, 9))
        elif kind == "config":
            self.made += 1
            change = [AlterConfigsResource(TOPIC, name, [AlterableConfig("retention.ms", 0, str(1000 + self.made))])]
            value = partitions, str(1000 + self.made)
            await self.change(("topic", name), value, client.ask(IncrementalAlterConfigsRequest(change)))
        elif kind == "grow" and partitions < 4:
            more = CreatePartitionsRequest([CreatePartitionsTopic(name, partitions + 1, None)], 1000)
            self.topics[name] = number, partitions + 1
            now = (await client.ask(describe(name))).results[0].configs[0].value
            await self.change(("topic", name), (partitions + 1, now), client.ask(more))
        elif kind == "delete":
            for key in [("end", name), *((f"offset of {each}", name) for each in GROUPS)]:
                self.disk.mark(("asked", key, None))
            del self.topics[name]
            await self.change(("topic", name), None, client.ask(DeleteTopicsRequest([], [name], 1000), 5))
            for key in [("end", name), *((f"offset of {each}", name) for each in GROUPS)]:
                self.disk.mark(("told", key, None))
        elif kind == "group":
            for each in NAMES:
                self.disk.mark(("asked", (f"offset of {group}", each), None))
            await client.ask(DeleteGroupsRequest([group]), 2)
            for each in NAMES:
                self.disk.mark(("told", (f"offset of {group}", each), None))
        elif kind == "quota":
            rate = None if self.pick.random() < 0.3 else float(self.pick.randint(1, 10**6))
            entry = EntryData([EntityData("user", group)], [OpData(RATE, rate or 0.0, rate is None)])
            await self.change(("quota", group), rate, client.ask(AlterClientQuotasRequest([entry])))
        elif kind == "id":
            given = await client.ask(InitProducerIdRequest(None, 1000), 4)
            self.disk.mark(("id", ("", ""), given.producer_id))


def describe(name: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest([DescribeConfigsResource(TOPIC, name, ["retention.ms"])])


async def live(root: Path, seed: int, steps: int, restarts: int) -> Disk:
    root.mkdir()
    disk = Disk(root)
    life = Life(disk, seed)
    for _ in range(restarts):
        async with broker(root, disk) as client:
            for _ in range(steps):
                await life.step(client)
    return disk


async def check(path: Path, promises: Promises) -> int:
    """Start a broker on the remaining data, and ask it. Returns the number of values that were checked."""
    looked = 0
    async with broker(path, Io()) as client:
        listed = await client.ask(MetadataRequest(topics=None), 9)
        topics = {topic.name: topic for topic in listed.topics}
        for name in NAMES:
            looked += 1
            found: Any = None
            if name in topics:
                value = (await client.ask(describe(name))).results[0].configs[0].value
                found = len(topics[name].partitions), value
            assert found in promises.may["topic", name], f"topic {name} is {found}"
            ends = promises.may["end", name]
            records: list[bytes | None] = []
            if found is not None:
                answer = await client.fetch(name, 0)
                assert answer.error_code == ErrorCode.NONE
                records = [r.value for _, data in iter_batches(answer.records or b"") for r in iter_records(data)]
            least = min(end or 0 for end in ends)
            assert len(records) >= least, f"{name} has {len(records)} records, promised {ends}"
            assert len({(value or b"").split()[0] for value in records}) <= 1, "records of two topics of one name"
            assert [int((value or b"").split()[1]) for value in records] == list(range(len(records)))
            looked += len(records)
        for group in GROUPS:
            offsets = await committed(client, group)
            assert offsets is not None
            for name in NAMES:
                looked += 1
                offset = offsets.get(name)
                assert offset in promises.may[f"offset of {group}", name], f"{group} has {offset} for {name}"
        users = await client.ask(DescribeClientQuotasRequest([ComponentData("user", quotas.ANY, None)]))
        rates = {entry.entity[0].entity_name: entry.values[0].value for entry in users.entries}
        for group in GROUPS:
            looked += 1
            assert rates.get(group) in promises.may["quota", group], f"{group} has the rate {rates.get(group)}"
        given = await client.ask(InitProducerIdRequest(None, 1000), 4)
        assert given.producer_id > promises.producer_id, "a producer id is given twice"
    return looked


def run(place: Path, seed: int, steps: int, states: int) -> None:
    disk = trio.run(live, place / "life", seed, steps, 3)
    pick = random.Random(seed)
    looked = 0
    for number in range(states):
        upto, mode = pick.randint(0, len(disk.journal)), ("some", "none", "names", "all")[number % 4]
        promises = Promises()
        for op in disk.journal[:upto]:
            if op.kind == "mark":
                promises.see(*op.detail)
        target = place / "state"
        shutil.rmtree(target, ignore_errors=True)
        survivor(disk.journal[:upto], target, random.Random(number), mode=mode)
        try:
            looked += trio.run(check, target, promises)
        except BaseException:
            print(f"seed {seed}, state {number}: power lost after {upto} of {len(disk.journal)} changes, {mode} kept")
            raise
    print(f"\npower loss under a broker: seed {seed}, {states} states, {looked} promises looked at")


def test_what_a_broker_has_answered_outlives_a_power_loss(tmp_path: Path) -> None:
    run(tmp_path, 1, steps=40, states=40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
@pytest.mark.timeout(900)
def test_long_lives_outlive_a_power_loss(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, steps=150, states=150)
